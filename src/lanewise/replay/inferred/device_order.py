"""The device's side of a run: what each operation waited for before it began."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.inferred.waits import CLOCK, LATENCY, LONG

if TYPE_CHECKING:
    from lanewise.replay.steady_run import SteadyRun
    from lanewise.trace.model import Trace

__all__ = ["NEVER", "DeviceOrder", "Holds"]

NEVER = np.iinfo(np.int64).min // 4
"""The end of what was not there, ns."""

# An operation that starts this long after the one before it, though launched long ago, was held back by another stream.
_HELD = 20_000
# Another stream's operation that held it back ended at most this long before.
_NEAR = 30_000
# A launch onto an idle device takes at most this long.
_DRAINED = 50_000
# Between two operations that were both queued, where a recording holds none to measure it by.
_PAUSE = 1_000.0


@dataclass(frozen=True, eq=False)
class Holds:
    """What kept each operation from beginning earlier.

    Attributes:
        pause: behind the operation before it on its stream, ns.
        lag: behind its launch, ns.
        other, other_lag: operation of another stream that held it up (-1 for none), and how long after its end it began.
        ready: when a stream was free of the work from before the run, by lane, ns.
    """

    pause: np.ndarray
    lag: np.ndarray
    other: np.ndarray
    other_lag: np.ndarray
    ready: dict[int, int]


class DeviceOrder:
    """Device operations of a run, by stream and start: rows of `device_work`, their events, lanes and times (ns)."""

    def __init__(self, trace: Trace, run: SteadyRun) -> None:
        self.trace, self.run = trace, run
        work = trace.device_work
        rows = np.flatnonzero(run.holds(trace, work))
        event = work[rows]
        self.row = rows[np.lexsort((trace.end[event], trace.start[event], trace.lane[event]))]
        self.event = work[self.row]
        self.lane = trace.lane[self.event]
        self.start, self.end = trace.start[self.event], trace.end[self.event]
        self.launch = trace.links.launch[self.row]
        """The call that launched each, -1 for none."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def launches(self) -> np.ndarray:
        """The calls that launched any of them."""
        return np.unique(self.launch[self.launch >= 0])

    def holds(self, has_launch: np.ndarray, said: np.ndarray) -> Holds:
        """What held up each operation.

        Args:
            has_launch: whose launch is on a host line.
            said: the operation of another stream that each waits for as the program says, -1 for none.
        """
        start, lane = self.start, self.lane
        before = self._before()
        same = before > NEVER
        idle = np.where(same, start - before, 0).astype(np.float64)
        call = np.maximum(self.launch, 0)
        launched = np.where(self.launch >= 0, self.trace.start[call], -1)
        delay = np.where(has_launch, start - launched, 0).astype(np.float64)
        # A call that takes so long, as it loads a kernel or the queue is full, launches at its end.
        slow = has_launch & (self.trace.duration[call] > _DRAINED) & (self.trace.end[call] <= start)
        launched = np.where(slow, self.trace.end[call], launched)
        # The later nodes of a graph follow its earlier ones.
        node = np.concatenate(([False], self.launch[1:] == self.launch[:-1])) if len(self) else same
        late = has_launch & (~same | (launched >= before)) & ~node
        # Its own stream was idle, and still it began long after its launch, just as another stream's operation ended.
        waited = late & (delay > _DRAINED)
        waited[waited] = self._ended_just_before(np.flatnonzero(waited)) >= 0
        late &= ~waited
        latency = float(np.median(delay[late])) if late.any() else LATENCY
        # Launched so long before that its predecessor, and nothing else, kept it waiting.
        queued = has_launch & same & ~node & (launched + latency <= before) & (idle <= _HELD)
        usual = float(np.clip(np.median(idle[queued]), 0, 2 * _PAUSE)) if queued.any() else _PAUSE
        # The device was ready, or nearly, when the launch came: the launch decided.
        by_launch = late | (has_launch & ~waited & ~node & same & (idle > usual + 1_000) & (delay <= 2 * latency))
        pause = np.where(same, np.where(by_launch, np.minimum(idle, usual), idle), 0.0)
        lag = np.where(by_launch, delay, np.minimum(delay, latency))

        # What held up the first operation of a stream was there before the run, and is not there in each of its rounds.
        head = np.concatenate(([True], lane[1:] != lane[:-1])) if len(self) else same
        ready = dict(self.earlier)
        for row in np.flatnonzero(head & ~by_launch & ~waited & has_launch).tolist():
            ready[int(lane[row])] = int(start[row] - min(idle[row], usual))
            pause[row] = min(idle[row], usual) if same[row] else 0.0

        held = same & ~by_launch & (idle > _HELD) & ~head
        first = ~same & has_launch & (delay > LONG) & ~head
        other, other_lag = np.full(len(self), -1, dtype=np.int64), np.zeros(len(self))
        suspects = np.flatnonzero(held | first | waited)
        found = self._ended_just_before(suspects)
        rows, found = suspects[found >= 0], found[found >= 0]
        other[rows] = found
        other_lag[rows] = start[rows] - self.end[found]
        pause[rows] = usual
        lag[rows] = np.minimum(lag[rows], latency)
        # What held nothing up while it was recorded, as the host was slower, may do so in a replay.
        rows = np.flatnonzero((other < 0) & (said >= 0))
        other[rows] = said[rows]
        other_lag[rows] = np.minimum(start[rows] - self.end[said[rows]], usual)
        return Holds(pause, lag, other, other_lag, ready)

    @cached_property
    def earlier(self) -> dict[int, int]:
        """When the work that was there before the run ended, by lane, ns."""
        trace, work = self.trace, self.trace.device_work
        step = trace.steps.of_event[work]
        rows = work[((step < self.run.first) & (trace.start[work] < self.run.until))]
        rows = rows[trace.end[rows] <= self.start.max(initial=0)]
        rows = rows[np.argsort(trace.end[rows], kind="stable")]
        ended = dict(zip(trace.lane[rows].tolist(), trace.end[rows].tolist(), strict=True))
        return {**self.run.held, **ended}

    def twin_of(self, row: int) -> int:
        """The operation that does in the run's last step what this row of `device_work` did in an earlier one: it stands
        as far from the end of its step, on its stream; -1 for none."""
        trace, work = self.trace, self.trace.device_work
        step = trace.steps.of_event[work]
        stream = trace.lane[work] == trace.lane[work[row]]
        after = int(np.count_nonzero(stream & (step == step[row]) & (trace.start[work] > trace.start[work[row]])))
        twins = np.flatnonzero((step[self.row] == self.run.last) & (self.lane == trace.lane[work[row]]))
        return int(twins[max(0, len(twins) - 1 - after)]) if len(twins) else -1

    def _before(self) -> np.ndarray:
        """End of the operation before each one on its stream, in the run or before it; `NEVER` for none."""
        result = np.full(len(self), NEVER, dtype=np.int64)
        if len(self):
            same = self.lane[1:] == self.lane[:-1]
            result[1:] = np.where(same, self.end[:-1], NEVER)
            first = np.flatnonzero(np.concatenate(([True], ~same)))
            result[first] = [self.earlier.get(int(lane), NEVER) for lane in self.lane[first]]
        return result

    def _ended_just_before(self, suspects: np.ndarray) -> np.ndarray:
        """The operation of another stream that ended just before each of these began, or -1."""
        by_end = np.argsort(self.end, kind="stable")
        at = np.searchsorted(self.end[by_end], self.start[suspects] + CLOCK // 2, side="right") - 1
        result = np.full(len(suspects), -1, dtype=np.int64)
        for _ in range(4):  # one stream's operation may have ended between
            row = by_end[np.maximum(at, 0)]
            near = (at >= 0) & (self.start[suspects] - self.end[row] <= _NEAR)
            hit = (result < 0) & near & (self.lane[row] != self.lane[suspects]) & (row != suspects)
            result[hit] = row[hit]
            at = at - 1
        return result
