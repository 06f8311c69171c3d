"""Bubbles: the device waits for the host, and no thread of the program dispatches anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.measure.launch.host_lanes import dispatching
from lanewise.trace.intervals import Union, clip, merge, subtract, union
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["Bubbles", "host_bubbles", "loader_rows"]

# Many short frames of one function explain a bubble if they fill this share of it.
_HALF = 0.5


@dataclass(frozen=True, eq=False)
class Bubbles:
    """Bubbles in the device windows of steady steps.

    Attributes:
        start, end: ns, shape (bubbles,).
        step: row of the step whose window holds each, shape (bubbles,).
        frame: innermost Python frame that spans most of each, or the longest of those of one function that do so together;
            -1 for none; shape (bubbles,).
    """

    start: np.ndarray
    end: np.ndarray
    step: np.ndarray
    frame: np.ndarray


@remembered
def loader_rows(facts: Core) -> np.ndarray:
    """Rows in which the program fetches its next batch from a DataLoader."""
    trace = facts.trace
    rows = trace.of(Kind.ANNOTATION, Kind.OPERATOR)
    named = trace.name_mask(r"^enumerate\(DataLoader\)#.*\.__next__$")
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
    frame = np.array([_frame(facts, int(low), int(high)) for low, high in zip(start, end, strict=True)], dtype=np.int64)
    return Bubbles(start, end, step, frame)


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


def _frame(facts: Core, low: int, high: int) -> int:
    """The innermost Python frame that spans at least 80 % of a bubble, on the thread that steps if it has one; where none
    does, the longest frame of the function whose innermost frames fill half of it together.

    Frames of other threads that merely sit in a wait span everything; the stepping thread tells more.
    """
    trace = facts.trace
    frames = trace.of(Kind.PYTHON)
    if len(frames) == 0:
        return -1
    overlap = np.minimum(trace.end[frames], high) - np.maximum(trace.start[frames], low)
    spanning = frames[overlap >= 0.8 * (high - low)]
    marks = trace.steps.event[trace.steps.event >= 0]
    own = spanning[np.isin(trace.lane[spanning], trace.lane[marks])]
    chosen = own if len(own) else spanning
    if len(chosen) == 0:
        return _of_many(facts, frames[overlap > 0], low, high)
    return int(chosen[np.lexsort((trace.start[chosen], trace.nesting.depth[chosen]))[-1]])


def _of_many(facts: Core, frames: np.ndarray, low: int, high: int) -> int:
    """The longest of the innermost frames of one function that fill half of a bubble together, or -1."""
    trace = facts.trace
    marks = trace.steps.event[trace.steps.event >= 0]
    own = frames[np.isin(trace.lane[frames], trace.lane[marks])]
    frames = own if len(own) else frames
    outer = np.isin(frames, nearest(trace.nesting.parent, trace.kind == Kind.PYTHON, frames))
    frames = frames[~outer]
    if len(frames) == 0:
        return -1
    inside = np.minimum(trace.end[frames], high) - np.maximum(trace.start[frames], low)
    functions, function = np.unique(trace.name[frames], return_inverse=True)
    total = np.bincount(function, weights=inside, minlength=len(functions))
    most = int(np.argmax(total))
    if total[most] < _HALF * (high - low):
        return -1
    mine = function == most
    return int(frames[mine][np.argmax(inside[mine])])
