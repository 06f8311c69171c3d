"""What a host line is in at every moment: the innermost recorded row, or nothing that is recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.trace.groups import in_order
from lanewise.trace.model import Trace
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["Stretches", "stretches_of"]

_CALLS = (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of one host line in time order, without gaps.

    Attributes:
        start, end: ns. row: innermost row, -1 for none. lane: lane of the row.
    """

    start: np.ndarray
    end: np.ndarray
    row: np.ndarray

    def cut(self, at: np.ndarray) -> Stretches:
        """The same with further cuts at these moments."""
        if len(self.start) == 0:
            return self
        inside = at[(at > self.start[0]) & (at < self.end[-1])]
        edges = in_order(np.concatenate((self.start, self.end[-1:], inside)))
        row = self.row[np.searchsorted(self.start, edges[:-1], side="right") - 1]
        return Stretches(edges[:-1], edges[1:], row)


def stretches_of(trace: Trace, lanes: np.ndarray, main: int, counts: np.ndarray, low: int, high: int) -> Stretches:
    """Stretches of the lanes that make up a line, from `low` to `high`, ns.

    Where several lanes are in a row, one that is in an operator or a call comes first, and then the main lane: the
    others wait for it, or it for them.

    Args:
        trace: the trace. lanes: rows of its lanes. main: the lane that marks the steps, -1 for none.
        counts: which rows count as something a thread is in, bool, shape (events,).
        low, high: what is asked for.
    """
    each = [_of_lane(trace, lane, counts) for lane in sorted(lanes.tolist(), key=lambda one: one != main)]
    edges = in_order(np.concatenate([[low, high], *(times for times, _ in each)]))
    edges = edges[(edges >= low) & (edges <= high)]
    chosen = np.full(len(edges) - 1, -1, dtype=np.int64)
    calling = np.zeros(len(chosen), dtype=bool)
    for times, rows in each:
        at = np.searchsorted(times, edges[:-1], side="right") - 1
        row = np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else chosen
        calls = (row >= 0) & np.isin(trace.kind[np.maximum(row, 0)], _CALLS)
        better = (row >= 0) & ((chosen < 0) | (calls & ~calling))
        chosen[better], calling[better] = row[better], calls[better]
    new = np.flatnonzero(np.concatenate(([True], chosen[1:] != chosen[:-1])))
    return Stretches(edges[new], np.concatenate((edges[new[1:]], edges[-1:])), chosen[new])


def _of_lane(trace: Trace, lane: int, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments at which the innermost row changes, and the row from then on."""
    rows = np.flatnonzero(counts & (trace.lane == lane) & (trace.duration > 0))
    if len(rows) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    parent = nearest(trace.nesting.parent, counts, rows)
    depth = trace.nesting.depth[rows].astype(np.int64)
    # A row that crosses the one around it ends with it.
    end = np.where(parent >= 0, np.minimum(trace.end[rows], trace.end[np.maximum(parent, 0)]), trace.end[rows])
    times = np.concatenate((trace.start[rows], end))
    after = np.concatenate((rows, parent))
    begins = np.concatenate((np.ones(len(rows), np.int64), np.zeros(len(rows), np.int64)))
    # At the same moment ends come first, the innermost before the outer ones; then beginnings, the outermost first.
    order = np.lexsort((np.concatenate((depth, -depth)), begins, times))
    times, after = times[order], after[order]
    last = np.concatenate((times[1:] != times[:-1], [True]))
    return times[last], after[last]
