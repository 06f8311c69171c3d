"""Which host calls wait for the device, and what each one waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.groups import median_of_group

if TYPE_CHECKING:
    from lanewise.replay.steady_run import SteadyRun
    from lanewise.trace.model import Trace

__all__ = ["CLOCK", "LATENCY", "LONG", "Waits"]

CLOCK = 5_000
"""Host and device clocks agree to about this much, ns."""

LATENCY = 6_000.0
"""From a launch to its start on an idle device, where a recording holds no such launch to measure it by; ns."""

LONG = 200_000
"""A wait or a delay of this length has a reason, even if none is recorded; ns."""

# A wait returns this soon after what it waited for; usually much sooner.
_RETURN, _USUAL_RETURN = 60_000, 12_000.0
# A call that launches takes 5 to 10 us; far above its own median, with this many operations queued, the queue was full.
_SLOW, _SLOW_RATIO, _DEEP = 30_000, 8.0, 64


@dataclass(frozen=True, eq=False)
class Waits:
    """Calls that wait.

    Attributes:
        event: the calls.
        own: what each takes by itself, ns.
        target: row of `device_work` that it waited for; -1 where none is recorded.
        lag: how long after the end of that it returned, ns.
    """

    event: np.ndarray
    own: np.ndarray
    target: np.ndarray
    lag: np.ndarray

    @staticmethod
    def of(trace: Trace, waiting: np.ndarray, run: SteadyRun, launches: np.ndarray) -> Waits:
        """The waits of a run: what `waiting` marks, frees and launches that took long because the device was busy."""
        work = trace.device_work
        waits = np.flatnonzero(waiting)
        freeing = trace.links.calls("free", "allocate")
        freeing = freeing[trace.duration[freeing] > _SLOW]
        suspects = np.setdiff1d(np.union1d(freeing, _held_back(trace, launches)), waits)
        events = np.concatenate((waits, suspects))
        events = events[run.holds(trace, events)]
        if len(work) == 0:
            events = events[np.isin(events, waits)]
            none = np.full(len(events), -1, dtype=np.int64)
            return Waits(events, trace.duration[events].astype(np.float64), none, np.zeros(len(events)))

        target = _waited_for(trace, events)
        end = np.where(target >= 0, trace.end[work[np.maximum(target, 0)]], np.iinfo(np.int64).min // 2)
        waited = (target >= 0) & (end > trace.start[events]) & (trace.end[events] - end <= _RETURN)
        # A call that merely might have waited is one only where something ended during it.
        keep = np.isin(events, waits) | waited
        events, target, end, waited = events[keep], target[keep], end[keep], waited[keep]
        duration = trace.duration[events].astype(np.float64)
        own = np.where(waited, np.minimum(_usual(trace, events, duration, waited), duration), duration)
        back = float(np.median((trace.end[events] - end)[waited])) if waited.any() else LATENCY
        lag = np.where(waited, (trace.end[events] - end).astype(np.float64), min(back, _USUAL_RETURN))
        # What had ended long before did not end this wait; a wait for something that is not recorded depends on nothing.
        unexplained = ~waited & (duration > LONG)
        return Waits(events, own, np.where(unexplained, -1, target), lag)


def _held_back(trace: Trace, calls: np.ndarray) -> np.ndarray:
    """Launches that took far longer than their kind usually does, behind a deep queue."""
    if len(calls) == 0:
        return calls
    duration = trace.duration[calls]
    slow = duration > np.maximum(_SLOW, _SLOW_RATIO * median_of_group(trace.name[calls], duration))
    if not slow.any():
        return calls[:0]
    linked = trace.links.launch >= 0
    launched = np.sort(trace.start[trace.links.launch[linked]])
    ended = np.sort(trace.end[trace.device_work[linked]])
    at = trace.start[calls]
    depth = np.searchsorted(launched, at) - np.searchsorted(ended, at)
    return calls[slow & (depth >= _DEEP)]


def _usual(trace: Trace, events: np.ndarray, duration: np.ndarray, waited: np.ndarray) -> np.ndarray:
    """What a call of each event's name takes where it need not wait; the shortest one where all had to."""
    name = trace.name[events]
    result = duration.copy()
    for one in np.unique(name).tolist():
        mine = name == one
        free = duration[mine & ~waited]
        result[mine] = np.median(free) if len(free) else min(float(duration[mine].min()), LATENCY)
    return result


def _waited_for(trace: Trace, events: np.ndarray) -> np.ndarray:
    """The device operation that each call waited for, a row of `device_work`, -1 for none: what the same thread launched
    last if the call returned as that ended (a readback waits for its own copy), else what ended last before it returned."""
    own, last = _own_launch(trace, events), _ended_last(trace, events)
    end = trace.end[trace.device_work[np.maximum(own, 0)]]
    ends_it = (own >= 0) & (end > trace.start[events]) & (end <= trace.end[events] + CLOCK)
    ends_it &= trace.end[events] - end <= _RETURN
    return np.where(ends_it, own, last)


def _ended_last(trace: Trace, events: np.ndarray) -> np.ndarray:
    """The device operation that ended last before each call returned, among those launched before it did."""
    work, launch = trace.device_work, trace.links.launch
    by_end = np.argsort(trace.end[work], kind="stable")
    # A blocking copy launches the work that it waits for.
    began = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], np.iinfo(np.int64).min)[by_end]
    at = np.searchsorted(trace.end[work][by_end], trace.end[events] + CLOCK, side="right") - 1
    while True:
        later = (at >= 0) & (began[np.maximum(at, 0)] > trace.start[events])
        if not later.any():
            return np.where(at >= 0, by_end[np.maximum(at, 0)], -1)
        at[later] -= 1


def _own_launch(trace: Trace, events: np.ndarray) -> np.ndarray:
    """The device operation that the thread of each call launched last before it, or by it."""
    launch = trace.links.launch
    linked = np.flatnonzero(launch >= 0)
    if len(linked) == 0:
        return np.full(len(events), -1, dtype=np.int64)
    by_call = linked[np.lexsort((trace.start[launch[linked]], trace.lane[launch[linked]]))]
    span = int(trace.end.max()) + 2
    key = trace.lane[launch[by_call]].astype(np.int64) * span + trace.start[launch[by_call]]
    at = np.searchsorted(key, trace.lane[events].astype(np.int64) * span + trace.start[events], side="right") - 1
    own = by_call[np.maximum(at, 0)]
    return np.where((at >= 0) & (trace.lane[launch[own]] == trace.lane[events]), own, -1)
