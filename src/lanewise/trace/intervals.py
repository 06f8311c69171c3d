"""Algebra of sets of time intervals, in numpy.

A `Union` is a set of time: disjoint, non-empty intervals in order. All arithmetic is in int64 nanoseconds, so sums are
exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Union", "clip", "covered", "intersect", "merge", "subtract", "union"]


class Union(NamedTuple):
    """Disjoint intervals in order: `end[i] < start[i + 1]`, `start[i] < end[i]`; ns."""

    start: np.ndarray
    end: np.ndarray

    @property
    def total(self) -> int:
        """Length of the set, ns."""
        return int((self.end - self.start).sum())

    @staticmethod
    def empty() -> Union:
        """The empty set."""
        nothing = np.empty(0, dtype=np.int64)
        return Union(nothing, nothing)


def union(start: np.ndarray, end: np.ndarray) -> Union:
    """The set of time covered by any of the intervals; empty and negative ones cover nothing."""
    real = end > start
    start, end = start[real], end[real]
    if len(start) == 0:
        return Union.empty()
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    begins = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((begins[1:], [len(start)])) - 1
    return Union(start[begins], reach[last])


def merge(*sets: Union) -> Union:
    """Time in any of the sets."""
    return union(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))


def intersect(a: Union, b: Union) -> Union:
    """Time in both sets."""
    return _combine(a, b, 2)


def subtract(a: Union, b: Union) -> Union:
    """Time in `a` but not in `b`."""
    if len(a.start) == 0 or len(b.start) == 0:
        return a
    low = min(a.start[0], b.start[0]) - 1
    high = max(a.end[-1], b.end[-1]) + 1
    outside = Union(np.concatenate(([low], b.end)), np.concatenate((b.start, [high])))
    return intersect(a, outside)


def clip(a: Union, low: int, high: int) -> Union:
    """Time of `a` within [low, high]."""
    start, end = np.maximum(a.start, low), np.minimum(a.end, high)
    real = end > start
    return Union(start[real], end[real])


def covered(a: Union, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Length of `a` within each window [low, high]; ns, shape of `low`; 0 where high <= low."""
    if len(a.start) == 0:
        return np.zeros(len(low), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(a.end - a.start)))

    def up_to(time: np.ndarray) -> np.ndarray:
        row = np.searchsorted(a.start, time, side="right")
        over = np.where(row > 0, np.maximum(a.end[np.maximum(row - 1, 0)] - time, 0), 0)
        return before[row] - over

    return np.maximum(up_to(np.maximum(low, high)) - up_to(low), 0)


def _combine(a: Union, b: Union, needed: int) -> Union:
    time = np.concatenate((a.start, b.start, a.end, b.end))
    if len(time) == 0:
        return Union.empty()
    change = np.concatenate(
        (np.ones(len(a.start) + len(b.start), np.int64), -np.ones(len(a.end) + len(b.end), np.int64))
    )
    # Closing before opening at one instant: touching intervals do not overlap.
    order = np.lexsort((change, time))
    time, level = time[order], np.cumsum(change[order])
    inside = level[:-1] >= needed
    start, end = time[:-1][inside], time[1:][inside]
    return union(start, end)
