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
    assert finding.gain_ns == pytest.approx(150_000)
    assert title("MEM105", finding).startswith(
        "zero_grad fills 3 gradients or lists per step with zeros instead of dropping them"
    )


def test_host_bound_it_costs_the_launches() -> None:
    finding = found("MEM105", program(duration=1), unprofiled_us=3_000)
    assert finding.gain_ns == pytest.approx(22_000)


def accumulating(fill: str = "aten::zero_", *, gradients: int = 3, passes: int = 1, dims: object = None) -> Trace:
    """Fills of 50 us, and for each gradient and backward pass an addition of 70 us."""
    b = TraceBuilder()
    lists = fill.startswith("aten::_foreach")
    for _ in range(4):
        with b.step():
            with b.span("Optimizer.zero_grad#SGD.zero_grad"):
                for _ in range(1 if lists else gradients):
                    with b.op(fill, dims=dims, types=["TensorList"] if dims else None):
                        b.launch("FillFunctor", duration=50)
            for _ in range(passes * gradients):
                with b.op("torch::autograd::AccumulateGrad"), b.op("aten::add_"):
                    b.launch("add", duration=70)
    return b.build()


def test_the_additions_to_filled_gradients_go_away_with_the_fills() -> None:
    assert found("MEM105", accumulating()).gain_ns == pytest.approx(3 * (50_000 + 70_000))


def test_of_several_backward_passes_only_the_first_adds_to_nothing() -> None:
    assert found("MEM105", accumulating(passes=2)).gain_ns == pytest.approx(3 * (50_000 + 70_000))


def test_the_length_of_a_filled_list_is_in_its_shapes() -> None:
    assert found("MEM105", accumulating("aten::_foreach_zero_")).gain_ns == pytest.approx(50_000)
    shapes = [[[8, 8], [8], [8]]]
    assert found("MEM105", accumulating("aten::_foreach_zero_", dims=shapes)).gain_ns == pytest.approx(
        50_000 + 3 * 70_000
    )


def test_dropped_gradients_are_clear() -> None:
    assert cleared("MEM105", program(gradients=0))


def test_without_zero_grad_it_does_not_apply() -> None:
    assert skipped("MEM105", program(annotation="forward"))
