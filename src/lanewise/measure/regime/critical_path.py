"""The critical path of a step: what its end waited for, and what that waited for, back to its beginning.

From the step's last device operation backwards there is always one thing that the next thing waited for:

    a device operation   waited for the one before it on its stream, or for another stream, if it was launched in time;
                         otherwise for its launch
    a launch             waited for the host thread to get there
    a host thread        was at work, or sat in a blocking wait that ended when some device operation did

Each nanosecond of the step lies on the path once, so the shares add up. Runs of operations that follow each other on
one stream without a gap are one segment: the walk is bounded by the alternations between host and device, not by the
events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.trace.intervals import Union, covered, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["KINDS", "CriticalPath", "Segment", "critical_path"]

KINDS: tuple[str, ...] = ("host", "launch", "latency", "kernel", "copy", "communication", "dependency", "wait")
"""host work; API calls that launch; from launch to start on an idle device; device work of three kinds; launched but
held back by something the trace does not show; blocking waits, as far as no recorded device work explains them."""

# Operations this close behind each other ran back to back.
_BACK_TO_BACK_NS = 3_000

# A launch onto a drained device starts within this time (trace-format 9.6).
_LATENCY_NS = 50_000
# Usually much sooner, as does what was queued behind another operation.
_USUAL_LATENCY_NS = 15_000

# A blocking wait returns this soon after what it waited for.
_RETURN_NS = 100_000

# Host and device clocks agree to about this much.
_CLOCK_NS = 2_000

_MOST_SEGMENTS = 20_000


class Segment(NamedTuple):
    """A stretch of the path, in time order.

    Attributes:
        kind: one of KINDS. start, end: ns. event: an event of it, -1 if none. lane: row of `lanes`.
        events: number of device operations in it.
    """

    kind: str
    start: int
    end: int
    event: int
    lane: int
    events: int


@dataclass(frozen=True)
class CriticalPath:
    """Critical path of one step.

    Attributes:
        step: row of `Trace.steps`. start, end: window that the path spans, ns.
        segments: in time order, without holes.
        time: ns per kind, of KINDS.
        truncated: whether the walk gave up before the beginning; the rest is not attributed.
    """

    step: int
    start: int
    end: int
    segments: tuple[Segment, ...]
    time: dict[str, int]
    truncated: bool

    @property
    def shares(self) -> dict[str, float]:
        """Share of the path per kind."""
        total = max(1, sum(self.time.values()))
        return {kind: value / total for kind, value in self.time.items()}


def critical_path(facts: Core, step: int | None = None) -> CriticalPath:
    """Critical path of the step in a row of `Trace.steps`; of the last steady one by default."""
    if step is None:
        steady = np.flatnonzero(facts.steps.steady)
        step = int(steady[-1]) if len(steady) else 0
    start, end = int(facts.classes.window_start[step]), int(facts.classes.window_end[step])
    walk = _Walk(facts, start, end)
    segments = walk.run()
    return CriticalPath(step, start, end, tuple(segments), walk.time(segments), walk.truncated)


class _Walk:
    """One backward walk. Device operations are those that can matter: begun before the end, ended after the start."""

    def __init__(self, facts: Core, start: int, end: int) -> None:
        trace = facts.trace
        self.facts, self.trace, self.low, self.high = facts, trace, start, end
        self.truncated = False
        work = trace.device_work
        # Without a duration nothing can be waited for (and the walk would not move).
        near = (trace.start[work] < end) & (trace.end[work] > start) & (trace.duration[work] > 0)
        near &= (trace["lanes"]["process"] == facts.classes.device)[trace.lane[work]]
        rows = np.flatnonzero(near)
        rows = rows[np.lexsort((trace.start[work[rows]], trace.lane[work[rows]]))]
        self.event = work[rows]
        self.lane = trace.lane[self.event]
        self.start, self.end = trace.start[self.event], trace.end[self.event]
        self.launch = trace.links.launch[rows]
        self.launched = np.where(self.launch >= 0, trace.start[np.maximum(self.launch, 0)], -1)
        # A set is so short, and so often between two kernels, that it would only cut their runs into pieces.
        copying = trace.kind[self.event] == Kind.MEMCPY
        self.kind = np.where(facts.is_family("communication")[rows], 2, np.where(copying, 1, 0))
        self.by_end = np.argsort(self.end, kind="stable")
        self.sorted_end = self.end[self.by_end]
        self.run_start = self._runs()
        waits = np.flatnonzero(facts.host.waiting & (trace.duration > 0))
        order = waits[np.lexsort((trace.end[waits], trace.lane[waits]))]
        self.waits = order
        self.wait_lane, self.wait_end = trace.lane[order], trace.end[order]
        self.calls = self._launch_calls()

    def _runs(self) -> np.ndarray:
        """For each operation the first one of its stream from which all follow back to back, each launched in time."""
        n = len(self.event)
        follows = np.zeros(n, dtype=bool)
        if n > 1:
            same = self.lane[1:] == self.lane[:-1]
            gap = self.start[1:] - self.end[:-1]
            in_time = (self.launched[1:] < self.end[:-1]) | (self.launched[1:] < 0)
            follows[1:] = same & (gap <= _BACK_TO_BACK_NS) & in_time
        position = np.arange(n)
        return np.maximum.accumulate(np.where(follows, 0, position))

    def _launch_calls(self) -> dict[int, Union]:
        """Time of launching calls per host lane."""
        trace, calls = self.trace, self.facts.launches.call
        calls = calls[(trace.end[calls] > self.low) & (trace.start[calls] < self.high)]
        return {
            int(lane): union(trace.start[calls[trace.lane[calls] == lane]], trace.end[calls[trace.lane[calls] == lane]])
            for lane in np.unique(trace.lane[calls])
        }

    def run(self) -> list[Segment]:
        """Segments in time order."""
        found: list[Segment] = []
        at = self.high
        lane = -1
        current = self._ending_at(at, 0)
        for _ in range(_MOST_SEGMENTS):
            if at <= self.low:
                break
            if current >= 0:
                segment, at, current, lane = self._device(current, at)
            else:
                segment, at, current = self._host(lane, at)
            found.extend(part for part in segment if part.end > part.start)
        self.truncated = at > self.low
        return found[::-1]

    def _ending_at(self, time: int, within: int | None = None) -> int:
        """The operation that ended last at or before a time, at most `within` before it; -1 if there is none."""
        row = int(np.searchsorted(self.sorted_end, time, side="right")) - 1
        if row < 0 or (within is not None and time - int(self.sorted_end[row]) > within):
            return -1
        return int(self.by_end[row])

    def _device(self, current: int, at: int) -> tuple[list[Segment], int, int, int]:
        """Walk back over operations that ran back to back up to `at`; then to what the first of them waited for."""
        first = int(self.run_start[current])
        # Kernels, copies and communication are kept apart: cut the run where the kind changes.
        kinds = self.kind[first : current + 1]
        change = np.flatnonzero(kinds != kinds[-1])
        first += int(change[-1]) + 1 if len(change) else 0
        # An operation that a wait returned for may seem to start after the return: clocks agree to a microsecond only.
        begin = min(max(self.low, int(self.start[first])), at)
        kind = ("kernel", "copy", "communication")[self.kind[current]]
        lane = int(self.lane[current])
        parts = [Segment(kind, begin, at, int(self.event[current]), lane, current - first + 1)]
        if begin <= self.low:
            return parts, self.low, -1, -1
        if first > 0 and self.run_start[current] < first:
            return parts, begin, first - 1, -1
        launched = min(int(self.launched[first]), begin)
        launch = int(self.launch[first])
        before = self._ending_at(begin)
        if launched >= 0:
            before = self._held_by(first, begin, launched, before)
        earlier = int(self.end[before]) if before >= 0 else -1
        if launched < 0:
            # Launched before the recording, or by nobody known: whatever ended last is all there is to go by.
            if earlier < 0:
                return (
                    [Segment("dependency", self.low, begin, int(self.event[first]), lane, 0), *parts][::-1],
                    self.low,
                    -1,
                    -1,
                )
            parts.append(Segment("dependency", max(self.low, earlier), begin, int(self.event[first]), lane, 0))
            return parts, max(self.low, earlier), before, -1
        if earlier > launched:
            # It was in the queue already when something else ended: it waited for that.
            if begin - earlier > 0:
                kind = "latency" if begin - earlier <= _LATENCY_NS else "dependency"
                parts.append(Segment(kind, max(self.low, earlier), begin, int(self.event[first]), lane, 0))
            return parts, max(self.low, earlier), before, -1
        started = max(self.low, min(launched + _LATENCY_NS, begin))
        if begin > started:
            parts.append(Segment("dependency", started, begin, int(self.event[first]), lane, 0))
        parts.append(Segment("latency", max(self.low, launched), started, launch, int(self.trace.lane[launch]), 0))
        return parts, max(self.low, launched), -1, int(self.trace.lane[launch])

    def _held_by(self, first: int, begin: int, launched: int, last: int) -> int:
        """What an operation waited for that was in the queue already: the one before it on its stream, or one of another
        stream that ended just before it, if its own had been free for longer; -1 for neither.

        Streams end their work at any time: what happened to end last is no cause by itself.
        """
        own = first - 1 if first > 0 and self.lane[first - 1] == self.lane[first] else -1
        own_end = int(self.end[own]) if own >= 0 else -1
        free = max(own_end, launched)
        if own_end > launched and begin - own_end <= _USUAL_LATENCY_NS:
            return own
        other = last >= 0 and self.lane[last] != self.lane[first] and int(self.end[last]) > free
        if other and begin - free > _USUAL_LATENCY_NS and begin - int(self.end[last]) <= _LATENCY_NS:
            return last
        return own if own_end > launched else -1

    def _host(self, lane: int, at: int) -> tuple[list[Segment], int, int]:
        """Walk back along a host thread to the end of its last blocking wait, and from there to the device."""
        if lane < 0:
            return [Segment("dependency", self.low, at, -1, -1, 0)], self.low, -1
        low, high = np.searchsorted(self.wait_lane, lane), np.searchsorted(self.wait_lane, lane, side="right")
        row = int(low + np.searchsorted(self.wait_end[low:high], at, side="right")) - 1
        if row < low or int(self.wait_end[row]) <= self.low:
            return [Segment("host", self.low, at, -1, lane, 0)], self.low, -1
        wait = int(self.waits[row])
        returned = int(self.wait_end[row])
        began = int(self.trace.start[wait])
        parts = [Segment("host", returned, at, -1, lane, 0)]
        cause = self._ending_at(returned + _CLOCK_NS, _RETURN_NS)
        if cause >= 0 and int(self.end[cause]) > max(began, self.low):
            # What it waited for ended; the way back to the caller is the wait's own.
            ended = min(int(self.end[cause]), returned)
            parts.append(Segment("wait", ended, returned, wait, lane, 0))
            return parts, ended, cause
        parts.append(Segment("wait", max(self.low, began), returned, wait, lane, 0))
        return parts, max(self.low, began), -1

    def time(self, segments: list[Segment]) -> dict[str, int]:
        """Time per kind; that of the host divides into launching calls and the rest."""
        time = dict.fromkeys(KINDS, 0)
        host: dict[int, list[Segment]] = {}
        for segment in segments:
            if segment.kind == "host":
                host.setdefault(segment.lane, []).append(segment)
            else:
                time[segment.kind] += segment.end - segment.start
        for lane, mine in host.items():
            start, end = np.array([part.start for part in mine]), np.array([part.end for part in mine])
            launching = int(covered(self.calls.get(lane, Union.empty()), start, end).sum())
            time["launch"] += launching
            time["host"] += int((end - start).sum()) - launching
        return time
