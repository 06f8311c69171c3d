"""MEM105: gradients filled with zeros."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(
    fill: str = "aten::zero_",
    *,
    gradients: int = 3,
    annotation: str = "Optimizer.zero_grad#AdamW.zero_grad",
    duration: float = 50,
) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.span(annotation):
                for _ in range(gradients):
                    with b.op(fill):
                        b.launch("FillFunctor", duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=duration)
    return b.build()


@pytest.mark.parametrize("fill", ["aten::zero_", "aten::_foreach_zero_"])
def test_device_bound_it_costs_the_fills(fill: str) -> None:
    finding = found("MEM105", program(fill))
    assert (finding.side, finding.gain_ns) == ("device", 150_000)
    assert title("MEM105", finding).startswith("zero_grad fills 3 gradients or lists per step with zeros")


def test_host_bound_it_costs_the_launches() -> None:
    finding = found("MEM105", program(duration=1), unprofiled_us=3_000)
    assert (finding.side, finding.gain_ns) == ("host", 21_000)


def test_dropped_gradients_are_clear() -> None:
    assert cleared("MEM105", program(gradients=0))


def test_without_zero_grad_it_does_not_apply() -> None:
    assert skipped("MEM105", program(annotation="forward"))
