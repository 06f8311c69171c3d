"""Bubbles: the device waits for the host, and no thread of the program dispatches anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.measure.launch.host_lanes import dispatching
from lanewise.measure.regime.time_classes import LATENCY_NS
from lanewise.trace.intervals import Union, clip, merge, subtract, union
from lanewise.trace.schema import Kind

__all__ = ["LOADER", "Bubbles", "frame_of", "host_bubbles", "loader_rows"]

# A function whose calls take this share of a bubble is what it passes in.
_FILLS_FROM = 0.8


@dataclass(frozen=True, eq=False)
class Bubbles:
    """Bubbles in the device windows of steady steps.

    Attributes:
        start, end: ns, shape (bubbles,).
        step: row of the step whose window holds each, shape (bubbles,).
        frame: longest call of the innermost Python function that each passes in, or -1, shape (bubbles,).
        feeds: whether each ends with a copy to the device: what is copied is made in it, bool, shape (bubbles,).
    """

    start: np.ndarray
    end: np.ndarray
    step: np.ndarray
    frame: np.ndarray
    feeds: np.ndarray


LOADER = r"^enumerate\(DataLoader\)#.*\.__next__$"
"""What torch calls the row in which a program fetches its next batch."""


@remembered
def loader_rows(facts: Core) -> np.ndarray:
    """Rows in which the program fetches its next batch from a DataLoader."""
    trace = facts.trace
    rows = trace.of(Kind.ANNOTATION, Kind.OPERATOR)
    named = trace.name_mask(LOADER)
    return rows[named[trace.name[rows]]] if len(rows) else rows


def host_bubbles(facts: Core, *, from_ns: float) -> Bubbles:
    """Bubbles of at least `from_ns`; time in a DataLoader is not counted here."""
    trace, classes = facts.trace, facts.classes
    loading = loader_rows(facts)
    busy = merge(dispatching(facts), union(trace.start[loading], trace.end[loading]), _profiler(facts))
    idle = subtract(classes.sets["host"], busy)
    # Cutting at window edges only shortens, so the few long ones are enough.
    long = idle.end - idle.start >= from_ns
    idle = Union(idle.start[long], idle.end[long])
    parts: list[Union] = []
    steps: list[np.ndarray] = []
    for row in np.flatnonzero(facts.steps.steady).tolist():
        part = clip(idle, int(classes.window_start[row]), int(classes.window_end[row]))
        still = part.end - part.start >= from_ns
        parts.append(Union(part.start[still], part.end[still]))
        steps.append(np.full(int(still.sum()), row, dtype=np.int64))
    nothing = np.empty(0, dtype=np.int64)
    start = np.concatenate([nothing, *(part.start for part in parts)])
    end = np.concatenate([nothing, *(part.end for part in parts)])
    step = np.concatenate([nothing, *steps])
    frame = np.array(
        [frame_of(facts, int(low), int(high)) for low, high in zip(start, end, strict=True)], dtype=np.int64
    )
    return Bubbles(start, end, step, frame, _feeds(facts, end))


def _feeds(facts: Core, ends: np.ndarray) -> np.ndarray:
    """Whether the next launch after each of these times copies to the device."""
    trace, calls = facts.trace, facts.launches.call
    if len(calls) == 0:
        return np.zeros(len(ends), dtype=bool)
    copies = trace["copy_args"]
    copying = trace.links.launch_of(copies["event"][copies["direction"] == "HtoD"])
    calls = calls[np.argsort(trace.start[calls], kind="stable")]
    at = np.searchsorted(trace.start[calls], ends - LATENCY_NS)
    following = np.isin(calls, copying)[np.minimum(at, len(calls) - 1)]
    return following & (at < len(calls))


def _profiler(facts: Core) -> Union:
    """The profiler's own work at the end of every step: between two step marks, and its frames where stacks show
    them."""
    trace, steps = facts.trace, facts.trace.steps
    if steps.source != "profiler":
        return Union.empty()
    follows = np.diff(steps.number) == 1
    frames = trace.of(Kind.PYTHON)
    own = trace.name_mask(r"torch/profiler/profiler\.py\(\d+\): ")[trace.name[frames]] if len(frames) else frames > 0
    frames = frames[own]
    return union(
        np.concatenate((steps.end[:-1][follows], trace.start[frames])),
        np.concatenate((steps.start[1:][follows], trace.end[frames])),
    )


def frame_of(facts: Core, low: int, high: int) -> int:
    """The innermost Python function that a bubble passes in, as its longest call: on the thread that launches what ends the
    bubble, else on one that steps. It may be called many times, a poll say, so that no single call spans the bubble.

    Other threads tell nothing: a daemon that sleeps spans everything.
    """
    trace = facts.trace
    frames = trace.of(Kind.PYTHON)
    if len(frames) == 0:
        return -1
    overlap = np.minimum(trace.end[frames], high) - np.maximum(trace.start[frames], low)
    frames, overlap = frames[overlap > 0], overlap[overlap > 0]
    for lanes in _threads(facts, high):
        mine = np.isin(trace.lane[frames], lanes)
        name, part = trace.name[frames[mine]], overlap[mine]
        names, group = np.unique(name, return_inverse=True)
        fills = np.bincount(group, weights=part, minlength=len(names)) >= _FILLS_FROM * (high - low)
        if fills.any():
            inside = frames[mine][fills[group]]
            deepest = inside[np.argmax(trace.nesting.depth[inside])]
            same = inside[trace.name[inside] == trace.name[deepest]]
            return int(same[np.argmax(trace.duration[same])])
    return -1


def _threads(facts: Core, end: int) -> Iterator[np.ndarray]:
    """Lanes on which to look for what a bubble passes in: of the launch that ends it, and of the step marks."""
    trace, calls = facts.trace, facts.launches.call
    following = calls[trace.start[calls] >= end - LATENCY_NS]
    if len(following):
        yield trace.lane[following[np.argmin(trace.start[following])]].reshape(1)
    yield trace.lane[trace.steps.event[trace.steps.event >= 0]]
