"""The algebra of time sets against sets of integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanewise.trace.intervals import Union, clip, covered, intersect, merge, subtract, union

intervals = st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 15)), max_size=12)


def as_union(pairs: list[tuple[int, int]]) -> Union:
    start = np.array([s for s, _ in pairs], dtype=np.int64)
    length = np.array([d for _, d in pairs], dtype=np.int64)
    return union(start, start + length)


def as_set(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for s, d in pairs for t in range(s, s + d)}


def points(a: Union) -> set[int]:
    return {t for s, e in zip(a.start.tolist(), a.end.tolist(), strict=True) for t in range(s, e)}


@given(intervals)
def test_union_covers_the_same_time_and_is_disjoint(pairs: list[tuple[int, int]]) -> None:
    result = as_union(pairs)
    assert points(result) == as_set(pairs)
    assert result.total == len(as_set(pairs))
    assert (result.end > result.start).all()
    assert (result.start[1:] > result.end[:-1]).all()


@given(intervals, intervals)
def test_set_operations_agree_with_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = as_union(a), as_union(b)
    assert points(intersect(left, right)) == as_set(a) & as_set(b)
    assert points(subtract(left, right)) == as_set(a) - as_set(b)
    assert points(merge(left, right)) == as_set(a) | as_set(b)


@given(intervals, st.integers(-25, 80), st.integers(-25, 80))
def test_covered_length_of_a_window(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    expected = len([t for t in as_set(pairs) if low <= t < high])
    assert covered(as_union(pairs), np.array([low]), np.array([high]))[0] == expected
    if high >= low:
        assert clip(as_union(pairs), low, high).total == expected
