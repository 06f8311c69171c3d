"""What the pictures of measures are drawn from."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lanewise.bundled import bundled_path
from lanewise.measure.facts import Facts
from lanewise.measure.regime.critical_path import KINDS, CriticalPath, Segment
from lanewise.show.page.measured import measured, runs_of
from lanewise.trace.reader import read
from tests.support.builder import TraceBuilder


def test_runs_are_the_path_where_it_fits_a_screen() -> None:
    kinds = ("host", 100, 150), ("kernel", 150, 190), ("copy", 190, 200)
    path = CriticalPath(0, 100, 200, tuple(Segment(*one, -1, 0, 0) for one in kinds), {}, truncated=False)
    assert [(begin + 100, end + 100, KINDS[kind]) for begin, end, kind in runs_of(path)] == [
        (low, high, kind) for kind, low, high in kinds
    ]
    assert runs_of(CriticalPath(0, 5, 5, (), {}, truncated=False)) == []


def test_a_path_of_very_many_stretches_becomes_what_a_screen_can_show() -> None:
    parts = [
        Segment(kind, 10 * i + low, 10 * i + high, -1, 0, 0)
        for i in range(20_000)
        for kind, low, high in (("launch", 0, 3), ("kernel", 3, 10))
    ]
    runs = runs_of(CriticalPath(0, 0, 200_000, tuple(parts), {}, truncated=False))
    assert runs == [[0, 200_000, KINDS.index("kernel")]]


def test_only_measures_that_the_trace_has_are_there() -> None:
    facts = Facts(read(str(bundled_path("mnist")), cache=False))
    found = measured(facts)
    assert set(found) == {"overlap", "critical-path", "memory"}
    path = facts.critical_path()
    runs = found["critical-path"]["path"]["runs"]
    assert (runs[0][0], runs[-1][1]) == (0, path.end - path.start)
    assert all(before[1] == after[0] for before, after in pairwise(runs))
    total, hidden = found["overlap"]["beside"]["transfer"]
    assert total >= hidden == pytest.approx(facts.overlap.copies_hidden)
    b = TraceBuilder(metadata={})
    with b.step(), b.op("aten::mm"):
        b.wait(50)
    assert measured(Facts(b.build())) == {}
