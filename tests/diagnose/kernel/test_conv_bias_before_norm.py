"""KER112: a bias that the next operator removes."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped
from tests.support.builder import TraceBuilder


def network(
    *,
    bias: bool = True,
    norm: str = "aten::batch_norm",
    shapes: bool = True,
    between: bool = False,
    counted: bool = False,
    addition: float = 20.0,
) -> Trace:
    b = TraceBuilder()

    def of(*dims: list[int]) -> dict[str, Any]:
        return {"dims": list(dims), "types": ["float" if d else "" for d in dims]} if shapes else {}

    for _ in range(4):
        with b.step():
            with b.op("aten::conv2d", **of([8, 3, 32, 32], [16, 3, 3, 3], [16] if bias else [])):
                with b.op("aten::cudnn_convolution"):
                    b.launch("fprop", duration=100)
                if bias:
                    with b.op("aten::add_"):
                        b.launch("elementwise", duration=addition)
            if between:
                with b.op("aten::relu"):
                    b.launch("elementwise", duration=10)
            if counted:
                with b.op("aten::add_", dims=[[], []], types=["long int", ""]):
                    b.launch("elementwise", duration=1)
            with b.op(norm, **of([8, 16, 30, 30], [16])):
                b.launch("bn_fw", duration=50)
    return b.build()


def test_device_bound_it_costs_the_addition() -> None:
    finding = found("KER112", network())
    assert finding.gain_ns == pytest.approx(20_000)


def test_host_bound_it_costs_the_additions_host_time() -> None:
    finding = found("KER112", network(), unprofiled_us=3_000)
    assert 0 < finding.gain_ns <= 20_000


def test_without_a_bias_it_is_clear() -> None:
    assert cleared("KER112", network(bias=False))


def test_something_between_keeps_the_bias_useful() -> None:
    assert cleared("KER112", network(between=True))


def test_the_normalisations_count_of_batches_is_nothing_between() -> None:
    """In training `BatchNorm2d` adds one to `num_batches_tracked` before it normalises."""
    assert found("KER112", network(counted=True)).gain_ns == pytest.approx(20_000)


def test_without_batch_normalisation_it_does_not_apply() -> None:
    assert skipped("KER112", network(norm="aten::layer_norm"))


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("KER112", network(shapes=False))
