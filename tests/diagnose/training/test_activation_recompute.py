from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(forward: float, repeated: float, *, recorded: bool = True) -> TraceBuilder:
    """Forward, and a backward node that first computes something again."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::mm", sequence=1, forward_thread=0):
                b.launch("gemm", duration=forward)
            with b.op("autograd::engine::evaluate_function: MmBackward0", sequence=1, forward_thread=1):
                if repeated:
                    with b.op("aten::mm", sequence=9 if recorded else -1, forward_thread=0 if recorded else -1):
                        b.launch("gemm", duration=repeated)
                with b.op("aten::mm"):
                    b.launch("dgrad", duration=forward)
    return b


def test_forward_work_inside_backward() -> None:
    result = found("OPT105", run(100, 40).build())
    assert title("OPT105", result) == (
        "40.0 us of device time per step repeats forward work inside backward, 40 % of the forward pass."
    )
    assert result.gain_ns == pytest.approx(40_000)


def test_the_threshold_is_one_quarter() -> None:
    cleared("OPT105", run(100, 25).build())
    found("OPT105", run(100, 26).build())


def test_the_backward_pass_records_nothing_of_its_own() -> None:
    assert cleared("OPT105", run(100, 80, recorded=False).build()) == "0% of the forward pass is repeated"


def checkpointed(*, regions: bool, saved: int = 0, apart: Sequence[float] = (300, 300)) -> TraceBuilder:
    """Host-bound: layers whose forward work runs again, each of them after `apart` us of Python without a row."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::embedding"):
                b.launch("gather", duration=1)
            for us in apart:
                b.wait(us)
                if regions:
                    with b.op("_NoopSaveInputs", head=10):
                        pass
                with b.op("aten::mm", sequence=1, forward_thread=0, head=200):
                    b.launch("gemm", duration=1)
            for _ in apart:
                with b.op("autograd::engine::evaluate_function: MmBackward0", sequence=1, forward_thread=1, head=100):
                    with b.op("aten::mm", sequence=9, forward_thread=0, head=100):
                        for _ in range(saved):
                            with b.op("aten::detach"):
                                pass
                        b.launch("gemm", duration=1)
                    with b.op("aten::mm", head=200):
                        b.launch("dgrad", duration=1)
    return b


def test_what_setting_a_region_up_takes_on_the_host_goes_too() -> None:
    # Short enough that what follows is not taken to have been slowed by a pause.
    with_and_without = (checkpointed(regions=regions, apart=(150, 150)).build() for regions in (True, False))
    gain, plain = (found("OPT105", trace).gain_ns for trace in with_and_without)
    assert gain == pytest.approx(plain + 2 * 160_000, rel=0.02)


def test_a_hook_for_each_tensor_that_is_not_saved_goes_in_both_directions() -> None:
    none, three = (found("OPT105", checkpointed(regions=True, saved=saved).build()) for saved in (0, 3))
    # Two layers, three tensors each, 11 us forward and again backward; and the rows themselves, that are repeated.
    assert three.gain_ns - none.gain_ns == pytest.approx(2 * 3 * 22_000, rel=0.15)


def test_no_region_takes_longer_to_set_up_than_is_usual() -> None:
    """Before the first region the program does something of its own."""
    usual, longer = (found("OPT105", checkpointed(regions=True, apart=(a, 300, 300)).build()) for a in (300, 5_000))
    assert longer.gain_ns == pytest.approx(usual.gain_ns, rel=0.01)


def test_no_backward() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch()
    skipped("OPT105", b.build())
