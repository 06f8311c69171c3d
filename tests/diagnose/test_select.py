"""Which events a rule speaks of."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.diagnose.select import (
    claim,
    climb,
    counted,
    device_rows,
    device_sum,
    enclosing,
    host_cost,
    named,
    outermost,
    per,
    sites,
)
from lanewise.measure.facts import Facts
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder


def nested() -> Facts:
    """Two steps of `to > _to_copy > copy_` with a launch, and a lone `add` on another thread."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::to"), b.op("aten::_to_copy"), b.op("aten::copy_"):
            b.launch("copy", duration=10)
    b.slice("aten::add", Kind.OPERATOR, 2, 3, thread="200")
    return Facts(b.build())


def names(facts: Facts, events: np.ndarray) -> list[str]:
    return [facts.trace.name_of(int(event)) if event >= 0 else "" for event in events]


def test_outermost_keeps_one_of_each_nest() -> None:
    facts = nested()
    every = facts.trace.of(Kind.OPERATOR)
    assert names(facts, outermost(facts, every)) == ["aten::to"] * 3 + ["aten::add"]


def test_enclosing_finds_the_holder_on_the_same_thread_only() -> None:
    facts = nested()
    holders = named(facts, (Kind.OPERATOR,), "aten::to")
    inside = named(facts, (Kind.OPERATOR,), "aten::copy_", "aten::add")
    assert names(facts, enclosing(facts, holders, inside)) == ["aten::to"] * 3 + [""]
    assert enclosing(facts, holders, holders).tolist() == [-1, -1, -1]  # an event does not hold itself


def test_climb_goes_through_the_given_names_only() -> None:
    facts = nested()
    through = np.zeros(len(facts.trace.names), dtype=bool)
    through[facts.trace.name_ids("aten::_to_copy")] = True
    leaves = named(facts, (Kind.OPERATOR,), "aten::copy_")
    assert names(facts, climb(facts, leaves, through)) == ["aten::_to_copy"] * 3


def test_sums_are_per_steady_step() -> None:
    facts = nested()
    rows = device_rows(facts, Kind.KERNEL)
    assert len(rows) == 2  # the first recorded step is not steady
    assert device_sum(facts, rows) == 10_000
    # Three operators of 2 us each around a call of 5 us.
    assert host_cost(facts, facts.trace.links.launch[rows]) == 11_000
    assert len(claim(facts, rows)) == 4


def test_sites_group_by_what_called() -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.step():
            for line in (1, 2):
                with b.frame(f"train.py({line}): loop"), b.op("aten::item"):
                    pass
    facts = Facts(b.build())
    found = sites(facts, named(facts, (Kind.OPERATOR,), "aten::item"))
    assert found.label == ["train.py:1 aten::item", "train.py:2 aten::item"]
    assert found.of_event.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1 copy"), (0, "0 copies"), (2.54, "2.5 copies"), (1234.4, "1,234 copies")]
)
def test_numbers_with_their_noun(number: float, text: str) -> None:
    assert str(counted(number, "copy", "copies")) == text


def test_sums_of_a_trace_without_steps_are_of_the_recording() -> None:
    b = TraceBuilder()
    b.launch("gemm")
    assert str(per(Facts(b.build()))) == "in this recording"
    assert str(per(nested())) == "per step"
