"""Frames and ranges that were never closed: the profiler ends them with the recording, and they swallow what came after."""

from __future__ import annotations

import numpy as np

__all__ = ["cut_open_frames", "cut_open_ranges"]

# Less than this is not worth a correction.
_WORTH_NS = 10_000
# What ends so close to the end of its thread's rows was closed by the profiler.
_AT_END_NS = 1_000


def cut_open_frames(
    start: np.ndarray, duration: np.ndarray, lane: np.ndarray, number: np.ndarray, parent: np.ndarray
) -> np.ndarray:
    """Durations of Python frames, those left open ended where a frame begins that they cannot have called.

    Frames that are open at the end of a recording called each other: the callers of the last frame are all that can be
    open. One that is not among them had returned, whatever its row says.

    Args:
        start, duration, lane: of Python frames, ns. number, parent: their ids, -1 for none.
    """
    result, end = duration.copy(), start + duration
    by_number = np.argsort(number, kind="stable")
    for one in np.unique(lane).tolist():
        rows = np.flatnonzero((lane == one) & (number >= 0))
        if len(rows) < 2:
            continue
        at_end = rows[end[rows] >= end[rows].max() - _AT_END_NS]
        last = int(rows[np.argmax(start[rows])])
        open_still = _callers(last, number, parent, by_number)
        for row in at_end.tolist():
            if row in open_still:
                continue
            # What one of its callers called after it began, or nobody did, came after it had returned.
            above = [int(number[caller]) for caller in _callers(row, number, parent, by_number) if caller != row]
            later = rows[(start[rows] > start[row]) & np.isin(parent[rows], [*above, int(parent[row])])]
            if len(later) and start[later].min() + _WORTH_NS < end[row]:
                result[row] = start[later].min() - start[row]
    return result


def _callers(row: int, number: np.ndarray, parent: np.ndarray, by_number: np.ndarray) -> set[int]:
    """A frame and all that called it."""
    found: set[int] = set()
    while row not in found:
        found.add(row)
        at = int(np.searchsorted(number, parent[row], sorter=by_number))
        if parent[row] < 0 or at == len(number) or number[by_number[at]] != parent[row]:
            break
        row = int(by_number[at])
    return found


def cut_open_ranges(start: np.ndarray, duration: np.ndarray, lane: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """Durations of annotations and operators, those left open ended with the one around them.

    Args:
        start, duration, lane: of annotations and operators, ns. closed: those that are surely not left open, bool.
    """
    result, end = duration.copy(), start + duration
    for one in np.unique(lane).tolist():
        rows = np.flatnonzero((lane == one) & (duration > 0))
        if len(rows) < 2:
            continue
        for row in rows[(end[rows] >= end[rows].max() - _AT_END_NS) & ~closed[rows]].tolist():
            around = (start[rows] < start[row]) & (end[rows] > start[row] + _AT_END_NS)
            around = rows[around & (end[rows] < end[row] - _WORTH_NS)]
            if len(around):
                result[row] = end[around[np.argmax(start[around])]] - start[row]
    return result
