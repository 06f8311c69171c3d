"""Which host threads take turns: a backward pass and the thread that waits for it are one line of host work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.trace.groups import distinct
from lanewise.trace.intervals import Union, intersect, merge, subtract, union
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["Lines"]

# Threads that are at work at once for less than this share of the less busy one's time take turns.
_TOGETHER = 0.05

# Recording a row is over so long after it begins or ends; what the profiler does where a step begins takes longer.
_ROW_NS, _STEP_NS = 20_000, 80_000


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines of host work.

    Operators and API calls are what a thread does: Python frames and annotations stay open while it waits for another.

    Attributes:
        of_lane: the line of each lane of a trace, -1 for lanes without host work; int64, shape (lanes,).
        busy: for each line, when each of its lanes is in an operator or an API call.
    """

    trace: Trace
    of_lane: np.ndarray
    busy: list[list[Union]]

    @staticmethod
    def of(trace: Trace, main: int) -> Lines:
        """The lines of a trace; the lane that marks the steps, `main`, is on line 0 (-1 if none does)."""
        of_lane, busy = _take_turns(trace, main)
        return Lines(trace, of_lane, busy)

    def unrecorded(self, begins: np.ndarray, profiler: Union) -> dict[int, Union]:
        """For each line, when a thread runs code in which nothing is recorded: it is between two operators or API calls,
        and no row has begun or ended for longer than recording one takes.

        Not in an operator, as libraries make calls there that the profiler sees and does not keep; and not where one thread
        goes on for another one, which had to be woken.

        Args:
            begins: when steps begin, ns. profiler: when the profiler itself is at work, on line 0.
        """
        trace = self.trace
        others = trace.of(Kind.PYTHON, Kind.ANNOTATION)
        line = self.of_lane[trace.lane[others]]
        result: dict[int, Union] = {}
        for number, lanes in enumerate(self.busy):
            work = merge(*lanes)
            long = np.flatnonzero(work.start[1:] - work.end[:-1] > _ROW_NS)
            begin, end = work.end[long], work.start[long + 1]
            alone = np.zeros(len(long), dtype=bool)
            for lane in lanes:
                alone |= np.isin(begin, lane.end) & np.isin(end, lane.start)
            free = Union(begin[alone], end[alone])
            rows = others[line == number]
            edges = _within(free, np.concatenate((free.start, trace.start[rows], trace.end[rows])))
            recording = union(edges, edges + _ROW_NS)
            if number == 0:
                recording = merge(recording, profiler, union(begins, begins + _STEP_NS))
            result[number] = subtract(free, recording)
        return result


def _within(spans: Union, times: np.ndarray) -> np.ndarray:
    """Those of the times that lie in a set of time."""
    if len(spans.start) == 0:
        return times[:0]
    at = np.searchsorted(spans.start, times, side="right") - 1
    return times[(at >= 0) & (times < spans.end[np.maximum(at, 0)])]


def _take_turns(trace: Trace, main: int) -> tuple[np.ndarray, list[list[Union]]]:
    rows = trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
    of_lane = trace.lane[rows]
    line = np.full(len(trace["lanes"]["side"]), -1, dtype=np.int64)
    busy: list[Union] = []
    alone: list[list[Union]] = []
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
                alone[number].append(mine)
                break
        else:
            line[lane] = len(busy)
            busy.append(mine)
            alone.append([mine])
    return line, alone


def _length(spans: Union) -> int:
    return int((spans.end - spans.start).sum())
