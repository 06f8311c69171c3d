from __future__ import annotations

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


def test_no_backward() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch()
    skipped("OPT105", b.build())
