"""Trace -> the columns that a timeline draws, at most so many of them, and what was left out.

Slices are sorted by row and start. A row is one level of nesting of one lane: slices of a row follow each other, so
that a viewer finds what is visible by binary search. Everything else refers to a slice by its position in that order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.trace.nesting import nest
from lanewise.trace.schema import KINDS, Kind

__all__ = ["MAX_SLICES", "Timeline", "cause_intervals", "timeline_of"]

MAX_SLICES = 1_500_000

# Kept first when there are too many slices: what the device does, and what marks the program's parts.
_FIRST = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.ANNOTATION)


@dataclass(frozen=True, eq=False)
class Timeline:
    """Slices in drawing order.

    Attributes:
        event: event id of each slice, shape (slices,).
        position: slice of each event, or -1, shape (events,).
        row_lane, row_depth, row_first, row_count: the rows, in drawing order.
        lanes: one entry per lane in drawing order: label, side, process, thread, events.
        omitted: slices left out, by kind.
    """

    event: np.ndarray
    position: np.ndarray
    row_lane: np.ndarray
    row_depth: np.ndarray
    row_first: np.ndarray
    row_count: np.ndarray
    lanes: list[dict[str, Any]]
    omitted: dict[str, int] = field(default_factory=dict[str, int])


def timeline_of(facts: Facts, *, max_slices: int = MAX_SLICES) -> Timeline:
    """Lay out the slices of a trace."""
    trace = facts.trace
    event = np.flatnonzero(trace.kind != Kind.COUNTER)
    event, omitted = _most_telling(facts, event, max_slices)
    lane_of, depth_of = _placed(facts)
    order_of_lane, lanes = _lane_order(facts, event, lane_of)
    lane, depth = order_of_lane[lane_of[event]], depth_of[event]
    order = _drawing_order(lane, depth, trace.start[event], trace.duration[event])
    event, lane, depth = event[order], lane[order], depth[order]
    position = np.full(len(trace), -1, dtype=np.int64)
    position[event] = np.arange(len(event))
    if len(event) == 0:
        none = np.empty(0, dtype=np.int64)
        return Timeline(event, position, none, none, none, none, [], omitted)
    new = np.flatnonzero(np.concatenate(([True], (lane[1:] != lane[:-1]) | (depth[1:] != depth[:-1]))))
    count = np.diff(np.concatenate((new, [len(event)])))
    return Timeline(event, position, lane[new], depth[new].astype(np.int64), new, count, lanes, omitted)


def _drawing_order(lane: np.ndarray, depth: np.ndarray, start: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """By lane, depth, start, and the longer one first of those that start together."""
    if len(lane) == 0:
        return np.empty(0, dtype=np.int64)
    row = lane * (int(depth.max()) + 1) + depth
    if int(row.max()) < 2**16:
        # Few rows, as nearly always: sorting small numbers takes no comparisons.
        row = row.astype(np.uint16)
    by_start = np.argsort(start, kind="stable")
    order = by_start[np.argsort(row[by_start], kind="stable")]
    # Starts that are equal are rare: only they are put in order by duration.
    same = np.flatnonzero((row[order[1:]] == row[order[:-1]]) & (start[order[1:]] == start[order[:-1]]))
    if len(same):
        tied = np.union1d(same, same + 1)
        of = order[tied]
        order[tied] = of[np.lexsort((-duration[of], start[of], row[of]))]
    return order


def _most_telling(facts: Facts, event: np.ndarray, limit: int) -> tuple[np.ndarray, dict[str, int]]:
    """At most `limit` events: device work, annotations and launches first, then the longest; and what is left out."""
    if len(event) <= limit:
        return event, {}
    trace = facts.trace
    rank = np.isin(trace.kind[event], _FIRST).astype(np.int64) * 2
    rank += (trace.links.device_count_of_launch[event] > 0).astype(np.int64)
    best = np.lexsort((-trace.duration[event], -rank))
    kept, dropped = np.sort(best[:limit]), best[limit:]
    counts = np.bincount(trace.kind[event[dropped]], minlength=len(KINDS))
    return event[kept], {KINDS[kind]: int(n) for kind, n in enumerate(counts) if n}


def _placed(facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Lane and depth of every event as drawn: ranges on a stream get a lane of their own below it, numbered after all
    lanes, so that kernels keep one row whether or not a range is around them."""
    trace = facts.trace
    lane, depth = trace.lane.astype(np.int64), trace.nesting.depth.astype(np.int64)
    ranges = trace.of(Kind.GPU_ANNOTATION)
    if len(ranges) == 0:
        return lane, depth
    lane[ranges] += len(trace["lanes"]["side"])
    device = np.flatnonzero(trace["lanes"]["side"][trace.lane] == "device")
    depth[device] = nest(lane[device], trace.start[device], trace.duration[device]).depth
    return lane, depth


def _lane_order(facts: Facts, event: np.ndarray, lane_of: np.ndarray) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Rank of every lane, and the used lanes in order: devices, then host threads by their load, then the rest."""
    trace = facts.trace
    table = trace["lanes"]
    count = len(table["side"])
    load = np.bincount(lane_of[event], minlength=2 * count)
    marks = np.zeros(2 * count, dtype=np.int64)
    marks[trace.lane[trace.steps.event[trace.steps.event >= 0]]] = 1
    sides = table["side"].tolist()
    side_rank = np.array([{"device": 0, "host": 1}.get(side, 2) for side in sides] * 2, dtype=np.int64)
    streams = np.array([_numeric(text) for text in table["thread"].tolist()] * 2, dtype=np.int64)
    devices = np.array([_numeric(text) for text in table["process"].tolist()] * 2, dtype=np.int64)
    device, below = side_rank == 0, np.arange(2 * count) >= count
    order = np.lexsort((below, np.where(device, streams, -load), np.where(device, devices, -marks), side_rank))
    used = order[load[order] > 0]
    rank = np.zeros(2 * count, dtype=np.int64)
    rank[used] = np.arange(len(used))
    lanes: list[dict[str, Any]] = []
    for i in used.tolist():
        row = i % count if count else 0
        label = str(table["label"][row])[:200]
        lanes.append(
            {
                "label": f"ranges, {label}" if i >= count else label,
                "side": sides[row],
                "process": str(table["process"][row]),
                "thread": str(table["thread"][row]),
                "events": int(load[i]),
                "steps": bool(marks[i]),
            }
        )
    return rank, lanes


def _numeric(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 18 else 2**60


def cause_intervals(facts: Facts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the busiest device does or waits for, over time: start, duration and row of CLASSES, in start order."""
    sets = facts.classes.sets
    start = np.concatenate([sets[name].start for name in CLASSES])
    end = np.concatenate([sets[name].end for name in CLASSES])
    which = np.concatenate([np.full(len(sets[name].start), row, np.int64) for row, name in enumerate(CLASSES)])
    order = np.argsort(start, kind="stable")
    return start[order], (end - start)[order], which[order]
