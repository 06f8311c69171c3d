from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(
    copy: float,
    *,
    nodes: float = 100.0,
    operator: float = 10.0,
    compiled: bool = True,
    inside: bool = True,
    direction: str = "",
) -> TraceBuilder:
    """A graph of two nodes per step, and before it, inside or outside its region, one copy."""
    b = TraceBuilder()

    def copying() -> None:
        if direction:
            b.copy(direction, duration=copy)
        elif copy:
            with b.op("aten::_foreach_copy_", head=operator - 5, tail=0):
                b.launch("multi_tensor_apply_kernel<Copy>", duration=copy, call=5)

    for _ in range(3):
        with b.step(tail=300):
            if not inside:
                copying()
            with b.op("Torch-Compiled Region: 0/0" if compiled else "replay", head=60, tail=5):
                if inside:
                    copying()
                b.launch(["gemm", "add"], duration=nodes / 2, call=5)
    return b


def test_copies_before_a_replay() -> None:
    result = found("LAU107", run(20).build())
    assert title("LAU107", result) == (
        "1 copy per step to bring inputs to the fixed addresses of a CUDA graph: 20.0 us on the device (17 % of the "
        "region), 10.0 us on the host."
    )
    # The copy, and 20 us of what Python does before it.
    assert result.gain_ns == pytest.approx(30_000)


def test_a_device_bound_run_pays_on_the_device() -> None:
    result = found("LAU107", run(200, nodes=1000).build())
    assert result.gain_ns == pytest.approx(200_000)


def test_the_thresholds() -> None:
    cleared("LAU107", run(5, nodes=95, operator=7).build())  # 5 % of device time; 7 of 72 us on the host
    found("LAU107", run(5.1, nodes=95, operator=7).build())
    found("LAU107", run(1, nodes=99, operator=8).build())  # 8 of 73 us: more than 10 % of host time


def test_a_graph_captured_by_hand_owns_what_precedes_it_in_the_step() -> None:
    found("LAU107", run(20, compiled=False, inside=False).build())


def test_a_copy_outside_the_compiled_region_is_the_programs() -> None:
    cleared("LAU107", run(20, inside=False).build())


def test_data_from_the_host_must_be_copied_anyway() -> None:
    cleared("LAU107", run(20, direction="HtoD").build())
    found("LAU107", run(20, direction="DtoD").build())


def test_no_graph() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("LAU107", b.build())
