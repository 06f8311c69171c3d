from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(*, checked: int = 2, node: str = "autograd::engine::evaluate_function: MulBackward0") -> TraceBuilder:
    """Steps with a backward node that computes a gradient, and what stands in the node behind it."""
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op(node):
            with b.op("MulBackward0"), b.op("aten::mul"):
                b.launch(duration=4)
            for _ in range(checked):
                with b.op("aten::isnan", head=10, tail=10):
                    b.launch(kernel="not_equal", duration=2)
                with b.op("aten::_is_any_true", head=10, tail=10):
                    b.launch(kernel="reduce_any", duration=2)
                with b.op("aten::item", head=10, tail=10):
                    pass
    return b


def test_checks_behind_backward_nodes() -> None:
    result = found("OPT107", run().build())
    assert title("OPT107", result) == (
        "Each gradient of the backward pass is searched for NaN, 2 per step: anomaly detection is on."
    )
    rows = {row["operator"]: row["count"] for row in result.evidence[0].rows}  # type: ignore[union-attr]
    assert rows == {"aten::_is_any_true": 2, "aten::isnan": 2, "aten::item": 2}


def test_what_the_checks_take_of_the_host_is_to_gain() -> None:
    few, many = (found("OPT107", run(checked=n).build()).gain_ns for n in (2, 4))
    assert many == pytest.approx(2 * few, rel=0.15)
    assert few > 2 * 60_000


def test_a_backward_of_the_programs_own_may_look_for_nan() -> None:
    assert "no gradient" in cleared("OPT107", _inside_of_a_node().build())


def test_without_a_backward_pass() -> None:
    skipped("OPT107", run(node="aten::mul").build())


def _inside_of_a_node() -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("autograd::engine::evaluate_function: MyBackward"), b.op("MyBackward"), b.op("aten::isnan"):
            b.launch()
    return b
