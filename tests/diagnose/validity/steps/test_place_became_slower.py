from __future__ import annotations

import pytest

from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.registry import find_rule
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome
from lanewise.tree.slowing.slowdown import Period, Slowdown
from lanewise.tree.watching.watched import Watched
from tests.diagnose.outcomes import skipped, title
from tests.support.builder import TraceBuilder
from tests.tree.samples import small_tree

SLOWER = Slowdown(
    ("main", "Net", "layers.3", "aten::mm"), "train.py", 12, "step", before=1e6, after=1.5e6, since=4_000, at=4_080
)


def of_tree(*slowdowns: Slowdown, **thresholds: float) -> Outcome:
    check = find_rule("MEA116").of_tree
    assert check is not None
    watched = Watched(steps_watched=9_000, slowdowns=slowdowns, history=(Period(1, 1, 1, 1),))
    return check(Contexts(small_tree().with_info(watched=watched)), **thresholds)


def test_the_worst_place_is_named_and_all_are_listed() -> None:
    other = Slowdown(("main", "aten::add"), before=1e5, after=2e5, since=50, at=99)
    result = of_tree(other, SLOWER)
    assert isinstance(result, Found)
    assert title("MEA116", result) == (
        "layers.3 > aten::mm takes longer than before step 4,000: 1.50 ms of host time per step instead of 1.00 ms."
    )
    assert result.location is not None
    assert result.location.line == 12
    assert len(result.evidence[0].rows) == 2  # type: ignore[union-attr]


def test_a_baseline_is_another_source_of_the_same_question() -> None:
    time = Slowdown(("Net", "aten::mm"), before=1e6, after=1.5e6, against="monday.lw")
    calls = Slowdown(("Net", "aten::add"), what="calls", before=2, after=4, against="monday.lw")
    assert title("MEA116", of_tree(calls)) == (
        "Net > aten::add takes longer than in monday.lw: 4 calls per step instead of 2."
    )
    assert title("MEA116", of_tree(calls, time)) == (
        "Net > aten::mm takes longer than in monday.lw: 1.50 ms of host time per step instead of 1.00 ms."
    )


def test_a_healthy_run_says_nothing() -> None:
    assert isinstance(of_tree(), Clear)


def test_a_trace_is_too_short() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.launch("gemm", duration=10)
    assert "too short" in skipped("MEA116", b.build())


def test_a_tree_of_a_trace_was_not_followed() -> None:
    check = find_rule("MEA116").of_tree
    assert check is not None
    assert isinstance(check(Contexts(small_tree())), NotApplicable)


@pytest.mark.parametrize("increase_from", [0.4, 0.6])
def test_its_threshold(increase_from: float) -> None:
    result = of_tree(SLOWER, increase_from=increase_from)
    assert isinstance(result, Found if increase_from < 0.5 else Clear)
