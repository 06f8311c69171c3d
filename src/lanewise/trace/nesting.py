"""Which event contains which, on each lane, without a loop over events.

Slices of one lane should nest. Real ones sometimes cross by a little (trap R6 of the trace-format notes): an event that
outlives its parent is treated as closed at the parent's end, for nesting only, and counted.

Method. Order the events of all lanes by (lane, start, longest first, id). For properly nested intervals the depth of an
event is the number of earlier events of its lane that have not ended, and its parent is the latest earlier event one
level above. Both are binary searches in sorted arrays, so the cost is O(n log n) in numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Nesting", "innermost", "nearest", "nest"]

# Crossing by up to this much is rounding of the recorder, not a fault (trace-format R6).
TOLERANCE_NS = 1_000

_MAX_PASSES, _WALKS = 12, 2

_MOST_IN_ORDER = 200_000
"""Events that are walked through one by one, in 0.2 s; with more of them crossing, passes over all are tried."""


class Nesting(NamedTuple):
    """Nesting of all events; arrays have one entry per event.

    Attributes:
        parent: id of the innermost event of the same lane that contains it, or -1.
        depth: number of events around it.
        order: event ids by (lane, start, longest first): a preorder walk of every lane.
        crossing: number of events that outlive their parent by more than the tolerance.
    """

    parent: np.ndarray
    depth: np.ndarray
    order: np.ndarray
    crossing: int


def nest(lane: np.ndarray, start: np.ndarray, duration: np.ndarray) -> Nesting:
    """Parents and depths.

    Args:
        lane: lane of each event, any integer type, shape (n,).
        start: start, ns, shape (n,).
        duration: duration, ns, not negative, shape (n,).

    Events without duration never become parents: in files with whole microseconds many siblings share one instant.
    """
    n = len(start)
    if n == 0:
        empty = np.empty(0, dtype=np.int64)
        return Nesting(empty, np.empty(0, dtype=np.int32), empty, 0)

    # One number line for all lanes: shift each lane past the end of the one before, so that lanes never mix.
    lanes = lane.astype(np.int64) - int(lane.min())
    span = int(start.max()) - int(start.min()) + int(duration.max()) + 2
    if (int(lanes.max()) + 1) * span >= 2**62:
        lanes = np.unique(lanes, return_inverse=True)[1].astype(np.int64)
    key = lanes * span + (start - start.min())
    order = _preorder(key, duration)
    starts = key[order]
    ends = starts + duration[order]

    solid = np.flatnonzero(ends > starts)
    parent_of_solid, depth_of_solid, closed, crossing = _nest_solid(starts[solid], ends[solid])

    depth = np.zeros(n, dtype=np.int32)
    parent = np.full(n, -1, dtype=np.int64)
    depth[solid] = depth_of_solid
    parent[solid] = np.where(parent_of_solid >= 0, solid[parent_of_solid], -1)

    points = np.flatnonzero(ends == starts)
    if len(points) and len(solid):
        before = np.searchsorted(solid, points) - 1
        holder = _open_at(before, starts[points], closed, parent_of_solid)
        found = holder >= 0
        parent[points[found]] = solid[holder[found]]
        depth[points[found]] = depth_of_solid[holder[found]] + 1

    result = np.full(n, -1, dtype=np.int64)
    result[order] = np.where(parent >= 0, order[parent], -1)
    depths = np.empty(n, dtype=np.int32)
    depths[order] = depth
    return Nesting(result, depths, order, crossing)


def _preorder(key: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """Events by `key`; of those with the same one the longest first, then in file order."""
    # A trace is nearly in order, lane by lane, which this sort makes use of; one by three keys would not.
    order = np.argsort(key, kind="stable")
    in_order = key[order]
    same = in_order[1:] == in_order[:-1]
    if same.any():
        tied = np.flatnonzero(np.concatenate((same, [False])) | np.concatenate(([False], same)))
        events = order[tied]
        order[tied] = events[np.lexsort((-duration[events], in_order[tied]))]
    return order


def _nest_solid(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Parent positions, depths, ends used, and the count of crossings, for events with duration, in preorder.

    Of two crossing events the one that loses less is closed early: `ProfilerStep#N` opens inside a Python frame that
    returns at once, and cutting the step at that frame's end would empty it. Of two that began together the second one is.
    """
    n = len(starts)
    crossing = 0
    parent = np.full(n, -1, dtype=np.int64)
    depth = np.zeros(n, dtype=np.int64)
    closed = ends
    position = np.arange(n, dtype=np.int64)
    for attempt in range(_MAX_PASSES):
        # Events before i in the order that have ended by starts[i]; all of them started earlier.
        depth = position - np.searchsorted(np.sort(closed), starts, side="right")
        parent = _latest_above(depth)
        over = np.flatnonzero(parent >= 0)
        over = over[closed[over] > closed[parent[over]]]
        if len(over) == 0:
            break
        holder = parent[over]
        if attempt < _WALKS:
            # In a chain every event crosses the next, and one pass below would settle one link of it. What is closed early
            # may come to cross others: then all are walked through.
            involved = np.unique(np.concatenate((over, holder))) if attempt == 0 else position
            if len(involved) <= _MOST_IN_ORDER:
                closed, crossing = _close_in_order(starts, ends, involved)
                continue
        child_loses = closed[over] - closed[holder]
        holder_loses = closed[holder] - starts[over]
        if attempt == 0:
            crossing = int(np.count_nonzero(np.minimum(child_loses, holder_loses) > TOLERANCE_NS))
        closed = closed.copy()
        cut_child = (child_loses <= holder_loses) | (starts[over] == starts[holder])
        closed[over[cut_child]] = closed[holder[cut_child]]
        np.minimum.at(closed, holder[~cut_child], starts[over[~cut_child]])
    return parent, depth, closed, crossing


def _close_in_order(starts: np.ndarray, ends: np.ndarray, involved: np.ndarray) -> tuple[np.ndarray, int]:
    """Ends of all events with the crossings among `involved` settled, and how many there were.

    One walk in order with the events that are open: slow per event, but right for chains of any length.
    """
    start, end = starts[involved].tolist(), ends[involved].tolist()
    opened: list[int] = []
    crossing = 0
    for i, begin in enumerate(start):
        while opened and end[opened[-1]] <= begin:
            opened.pop()
        while opened and end[opened[-1]] < end[i]:
            child_loses, holder_loses = end[i] - end[opened[-1]], end[opened[-1]] - begin
            crossing += min(child_loses, holder_loses) > TOLERANCE_NS
            if child_loses <= holder_loses or begin == start[opened[-1]]:
                end[i] = end[opened[-1]]
            else:
                end[opened.pop()] = begin
        opened.append(i)
    closed = ends.copy()
    closed[involved] = end
    return closed, crossing


def _latest_above(depth: np.ndarray) -> np.ndarray:
    """For each position, the latest earlier position that is one level up, or -1."""
    result = np.full(len(depth), -1, dtype=np.int64)
    if len(depth) == 0:
        return result
    # Sorting 16-bit numbers is linear; one search per level is in an array of that level's size.
    deepest = int(depth.max())
    by_level = np.argsort(depth.astype(np.uint16) if deepest < 1 << 16 else depth, kind="stable")
    bounds = np.searchsorted(depth[by_level], np.arange(deepest + 2))
    for level in range(1, deepest + 1):
        above = by_level[bounds[level - 1] : bounds[level]]
        here = by_level[bounds[level] : bounds[level + 1]]
        if len(above):
            at = np.searchsorted(above, here) - 1
            result[here] = np.where(at >= 0, above[at], -1)
    return result


def _open_at(before: np.ndarray, time: np.ndarray, ends: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """From the latest event that began before `time`, climb to the innermost one still open then; -1 if none."""
    holder = before.copy()
    while True:
        climb = (holder >= 0) & (ends[np.maximum(holder, 0)] < time)
        if not climb.any():
            return holder
        holder[climb] = parent[holder[climb]]


def innermost(
    nesting: Nesting, lane: np.ndarray, start: np.ndarray, end: np.ndarray, at_lane: np.ndarray, at_time: np.ndarray
) -> np.ndarray:
    """The innermost event open at given points, or -1.

    Args:
        nesting: nesting of all events.
        lane, start, end: columns of all events, shape (n,).
        at_lane, at_time: the points, shape (k,).

    Returns:
        Event ids, shape (k,). An event is open from its start to just before its end.
    """
    order = nesting.order
    if len(at_time) == 0 or len(order) == 0:
        return np.full(len(at_time), -1, dtype=np.int64)
    low = min(int(start.min()), int(at_time.min()))
    span = max(int(end.max()), int(at_time.max())) - low + 2
    key = lane[order].astype(np.int64) * span + (start[order] - low)
    at = np.searchsorted(key, at_lane.astype(np.int64) * span + (at_time - low), side="right") - 1
    holder = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    holder[(holder >= 0) & (lane[np.maximum(holder, 0)] != at_lane)] = -1
    while True:
        climb = (holder >= 0) & (end[np.maximum(holder, 0)] <= at_time)
        if not climb.any():
            return holder
        holder[climb] = nesting.parent[holder[climb]]


def nearest(parent: np.ndarray, wanted: np.ndarray, events: np.ndarray, *, include_self: bool = False) -> np.ndarray:
    """The nearest ancestor of each given event that is wanted, or -1.

    Args:
        parent: parent of every event, shape (n,).
        wanted: which events count, bool, shape (n,).
        events: events to start from, shape (k,); -1 for none, which has no ancestor.
        include_self: whether an event that is itself wanted is its own answer.
    """
    at = np.full(len(events), -1, dtype=np.int64)
    real = events >= 0
    at[real] = events[real] if include_self else parent[events[real]]
    if len(parent) == 0:
        return at
    while True:
        climb = (at >= 0) & ~wanted[np.maximum(at, 0)]
        if not climb.any():
            return at
        at[climb] = parent[at[climb]]
