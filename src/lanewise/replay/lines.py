"""Which host threads take turns: a backward pass and the thread that waits for it are one line of host work."""

from __future__ import annotations

import numpy as np

from lanewise.trace.groups import distinct
from lanewise.trace.intervals import Union, intersect, merge, union
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["line_of_lanes"]

# Threads that are at work at once for less than this share of the less busy one's time take turns.
_TOGETHER = 0.05


def line_of_lanes(trace: Trace, main: int) -> np.ndarray:
    """The line of each lane of a trace, -1 for lanes without host work; int64, shape (lanes,).

    Operators and API calls are what a thread does: Python frames and annotations stay open while it waits for another.

    Args:
        trace: the trace.
        main: lane that marks the steps; it is on line 0. -1 if none does.
    """
    rows = trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
    of_lane = trace.lane[rows]
    line = np.full(len(trace["lanes"]["side"]), -1, dtype=np.int64)
    busy: list[Union] = []
    lanes = distinct(of_lane, len(line)).tolist() if len(rows) else []
    works: dict[int, Union] = {
        lane: union(trace.start[rows[of_lane == lane]], trace.end[rows[of_lane == lane]]) for lane in lanes
    }
    if main >= 0:
        works.setdefault(main, Union.empty())
    length = {lane: _length(spans) for lane, spans in works.items()}
    for lane in sorted(works, key=lambda one: (one != main, -length[one])):
        mine = works[lane]
        for number, other in enumerate(busy):
            together = _length(intersect(mine, other))
            if together <= _TOGETHER * min(_length(mine), _length(other)):
                line[lane], busy[number] = number, merge(other, mine)
                break
        else:
            line[lane] = len(busy)
            busy.append(mine)
    return line


def _length(spans: Union) -> int:
    return int((spans.end - spans.start).sum())
