"""The host's side of a run: where its lines are cut, and the work up to each cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.inferred.waits import Waits
from lanewise.trace.intervals import merge, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.replay.steady_run import SteadyRun
    from lanewise.trace.intervals import Union
    from lanewise.trace.model import Trace

__all__ = ["Points"]

# What `lanewise.replay.graph.ROWS` counts.
_ROW_KINDS = ((Kind.OPERATOR,), (Kind.RUNTIME, Kind.DRIVER), (Kind.PYTHON,), (Kind.ANNOTATION,))


@dataclass(frozen=True, eq=False)
class Points:
    """Launches, waits and step marks in order of line and time.

    Attributes:
        line: host line.
        start: where the host's work up to the point ends, ns.
        time: where the line may go on, ns: later than `start` for a wait.
        event: the call; -1 for a step mark.
        own, target, lag: as in `Waits`; 0, -1 and 0 where nothing is waited for.
    """

    trace: Trace
    run: SteadyRun
    line_of_lane: np.ndarray
    line: np.ndarray
    start: np.ndarray
    time: np.ndarray
    event: np.ndarray
    own: np.ndarray
    target: np.ndarray
    lag: np.ndarray

    @staticmethod
    def of(trace: Trace, run: SteadyRun, waiting: np.ndarray, line_of_lane: np.ndarray, launches: np.ndarray) -> Points:
        """The points of a run whose device work these calls launch."""
        waits = Waits.of(trace, waiting, run, launches)
        main = 0 if run.main_lane < 0 else int(line_of_lane[run.main_lane])
        marks = np.concatenate((run.begins, [run.until]))
        events = np.concatenate((launches, waits.event))
        line = np.concatenate((line_of_lane[trace.lane[events]], np.full(len(marks), main)))
        start = np.concatenate((trace.start[events], marks))
        time = np.concatenate((trace.start[launches], trace.end[waits.event], marks))

        def of_waits(column: np.ndarray, otherwise: int) -> np.ndarray:
            return np.concatenate((np.full(len(launches), otherwise), column, np.full(len(marks), otherwise)))

        keep = np.flatnonzero(line >= 0)
        # A wait comes after a launch by the same call.
        order = keep[np.lexsort((time[keep], start[keep], line[keep]))]
        return Points(
            trace=trace,
            run=run,
            line_of_lane=line_of_lane,
            line=line[order],
            start=start[order],
            time=time[order],
            event=np.concatenate((events, np.full(len(marks), -1, dtype=np.int64)))[order],
            own=of_waits(waits.own, 0)[order],
            target=of_waits(waits.target, -1)[order],
            lag=of_waits(waits.lag, 0)[order],
        )

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def begin(self) -> np.ndarray:
        """Where each point's host work begins, ns."""
        begin = np.full(len(self), self.run.begins[0], dtype=np.int64)
        same = self.line[1:] == self.line[:-1]
        begin[1:] = np.where(same, np.maximum(self.time[:-1], begin[1:]), begin[1:])
        return begin

    @property
    def end(self) -> np.ndarray:
        """Where it ends, ns."""
        return np.maximum(self.start, self.begin)

    @property
    def step(self) -> np.ndarray:
        """Step of the run that each point's work belongs to; the end of a step is the next one's beginning."""
        row = np.searchsorted(self.run.begins, self.start, side="left") - 1
        return np.clip(row, 0, self.run.steps - 1)

    def launch_of(self, calls: np.ndarray) -> np.ndarray:
        """The point at which each of these calls launches; -1 for calls without one."""
        launches = np.flatnonzero((self.event >= 0) & (self.time == self.start))
        if len(launches) == 0:
            return np.full(len(calls), -1, dtype=np.int64)
        by_event = launches[np.argsort(self.event[launches], kind="stable")]
        # The first point of a call that both launches and waits is its launch.
        at = np.minimum(np.searchsorted(self.event[by_event], calls), len(by_event) - 1)
        return np.where((calls >= 0) & (self.event[by_event][at] == calls), by_event[at], -1)

    def profiler(self, stalls: Union) -> Union:
        """The profiler's own time on line 0: its stalls, and its code between two steps."""
        steps, run = self.trace.steps, self.run
        own = stalls
        if steps.source == "profiler" and run.steps > 1:
            # Between the end of one `ProfilerStep#N` and the next lies the profiler's `step()`, and nothing else.
            own = merge(own, union(steps.end[run.first : run.last], steps.start[run.first + 1 : run.last + 1]))
        return own

    def rows(self) -> np.ndarray:
        """Recorded rows that begin in each point's host work, by `ROWS`."""
        trace = self.trace
        result = np.zeros((len(self), len(_ROW_KINDS)), dtype=np.int64)
        if len(self) == 0 or len(trace) == 0:
            return result
        span = int(max(trace.end.max(), self.time.max())) + 2
        low = int(min(trace.start.min(), self.begin.min()))
        key = self.line.astype(np.int64) * span + self.begin - low
        for column, kinds in enumerate(_ROW_KINDS):
            events = trace.of(*kinds)
            line = self.line_of_lane[trace.lane[events]]
            events, line = events[line >= 0], line[line >= 0]
            at = np.searchsorted(key, line * span + trace.start[events] - low, side="right") - 1
            inside = (at >= 0) & (self.line[np.maximum(at, 0)] == line)
            inside &= trace.start[events] < self.end[np.maximum(at, 0)]
            result[:, column] = np.bincount(at[inside], minlength=len(self))
        return result
