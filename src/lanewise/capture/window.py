"""The course of a recording: pass the first steps, time some, warm the profiler up, record, count energy, stop.

A `Window` is told of every step boundary, from whatever found it, and does the rest. Timing comes before any profiler
has started in the process, because a process that ever had one attached stays slower. Energy comes last: its counter
moves so rarely that it takes seconds of steps, and a program may not have as many.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from lanewise.capture.accelerator import Device
from lanewise.capture.schedule import Plan, settled_after
from lanewise.capture.thread_identity import ThreadMark, this_thread
from lanewise.capture.timing.clock import StepClock, round_trip_ns
from lanewise.capture.timing.distortion import ratio_interval
from lanewise.errors import LanewiseError
from lanewise.trace.metadata import Energy, StepTimes

_LONGEST = 10.0
"""A step, or a program without any, is cut after so many times the length that all recorded steps may have."""

_TINY_NS = 1_000_000

_LONGEST_WAIT = 1.0
"""Seconds that the thread of the steps has to come to the end of one, if another thread ends the recording."""

__all__ = ["Annotation", "Measured", "Meter", "Phase", "Profiler", "Window"]


class Phase(enum.Enum):
    """Where a recording is."""

    SKIP = "skip"
    TIMED = "timed"
    WARMUP = "warmup"
    ACTIVE = "active"
    METERED = "metered"
    DONE = "done"


class Profiler(Protocol):
    """What a window needs of a profiler session; see `profiler.Session`."""

    @property
    def of_all_threads(self) -> bool: ...
    def prepare(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def abandon(self) -> None: ...


class Annotation(Protocol):
    """Marks one step in the trace."""

    @property
    def is_open(self) -> bool: ...
    def begin(self, step: int) -> None: ...
    def end(self) -> None: ...


class Size(Protocol):
    """Predicts the trace's size; see `size.TraceSize`."""

    def observe(self) -> None: ...
    def begin(self) -> None: ...
    def predicted(self, *, inside: bool = False) -> int: ...


class Meter(Protocol):
    """Counts what the device draws; see `energy.Meter`."""

    def boundary(self) -> bool:
        """A step ended; whether that was enough of them."""
        ...

    @property
    def energy(self) -> Energy | None: ...


class Measured:
    """What a window found out; fields stay None where the program did not get that far."""

    def __init__(self) -> None:
        self.unprofiled: StepTimes | None = None
        self.yardstick_us: float | None = None
        self.profiled: StepTimes | None = None
        self.interval: tuple[float, float] | None = None
        self.settled_after: int | None = None
        self.steps_before = 0
        self.active = 0
        self.unfinished: int | None = None
        self.stopped_by = ""
        self.energy: Energy | None = None

    @property
    def distortion(self) -> float | None:
        """Profiled over un-profiled step time."""
        if self.unprofiled is None or self.profiled is None:
            return None
        return self.profiled.median_us / self.unprofiled.median_us


class Window:
    """Drives one recording; `boundary` is the only call on the program's path.

    Boundaries count on the thread of the first one only: a profiler session belongs to a thread. If that thread ends,
    the steps go on in the next one (a thread per request); a session that begins after that is of all threads.

    Args:
        plan: how many steps of each kind.
        profiler: makes the session and the size predictor when recording begins, never earlier; told whether the
            session has to be of all threads.
        device: asks for the device in use; called when timing and recording begin.
        annotation: marks steps in the trace.
        recorded: called where recording has stopped, with whether steps can be recorded once more; they are if it answers
            True. Between boundaries, and at the end, what there is is all that there will be.
        done: called once, when recording is over; whatever is installed in the program can go.
        meter: counts what the device draws in the steps after the recorded ones, if it can.
        pace: how long the yardstick takes, us (`timing.yardstick`), asked before and after the timed steps; 0 if unknown.
        now: the host clock, nanoseconds.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        profiler: Callable[[Device, bool], tuple[Profiler, Size]],
        device: Callable[[], Device],
        annotation: Annotation,
        recorded: Callable[[bool], bool],
        done: Callable[[], None],
        meter: Callable[[], Meter | None] = lambda: None,
        pace: Callable[[], float] = lambda: 0.0,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.plan = plan
        self.phase = Phase.SKIP
        self.measured = Measured()
        self.steps = -1
        self._make_profiler = profiler
        self._make_device = device
        self._annotation = annotation
        self._recorded = recorded
        self._done = done
        self._make_meter = meter
        self._pace = pace
        self._pace_before = 0.0
        self._meter: Meter | None = None
        self._now = now
        self._owner: weakref.ref[ThreadMark] | None = None
        self._moved = False
        self._wanted = ""
        self._over = threading.Event()
        self._at = 0
        self._busy = False
        self._clock: StepClock | None = None
        self._unprofiled_samples: list[float] = []
        self._profiler: Profiler | None = None
        self._size: Size | None = None
        self._whole = False

    @property
    def recording(self) -> bool:
        """Whether rows are being kept now."""
        return self.phase is Phase.ACTIVE

    @property
    def attached(self) -> bool:
        """Whether a profiler session of ours exists now."""
        return self.phase in (Phase.WARMUP, Phase.ACTIVE)

    @property
    def predicted_bytes(self) -> int:
        """How large the trace will be, as far as that can be told; 0 where it cannot."""
        return self._size.predicted() if self._size is not None else 0

    def boundary(self) -> None:
        """A step ended, and the next begins."""
        # First of all: what follows is not the program's.
        stamp = self._now()
        if self.phase is Phase.DONE or self._busy:
            return
        mark = this_thread()
        if (self._owner is None or self._owner() is not mark) and not self._takes_over(mark):
            return
        self._busy = True
        try:
            self.steps += 1
            if self._clock is not None:
                self._clock.tick(stamp)
            _ON_BOUNDARY[self.phase](self)
            if self._clock is not None:
                self._clock.resume()
        finally:
            self._busy = False

    def restart(self) -> None:
        """A better source of boundaries was found: forget what the other one counted. Ignored once recording began."""
        if self.phase in (Phase.SKIP, Phase.TIMED):
            self.phase, self.steps, self._at, self._owner, self._clock = Phase.SKIP, -1, 0, None, None

    def begin_whole(self) -> None:
        """Record from here to `finish`, without steps."""
        self._own(this_thread())
        self._whole = True
        self._attach()
        self._begin_rows()

    def over_limit(self) -> str:
        """`time` or `size` if recording has gone on too long without a boundary; asked from another thread."""
        if self._size is None:
            return ""
        if self.phase is Phase.WARMUP:
            self._size.observe()
        if self.phase is not Phase.ACTIVE:
            return ""
        if self._size.predicted(inside=True) > self.plan.trace_bytes:
            return "size"
        if self._whole:  # it has no boundary to wait for, and may load for minutes before it works
            return ""
        # Asked from another thread: meanwhile the rows may have ended, and their clock is gone.
        clock = self._clock
        return "time" if clock is not None and clock.since_open_ns > _LONGEST * self.plan.active_seconds * 1e9 else ""

    def cut(self, reason: str) -> bool:
        """End recording here, between two boundaries; False if a boundary is being handled right now."""
        if self._busy or self.phase is not Phase.ACTIVE:
            return self.phase is not Phase.ACTIVE
        self._busy = True
        try:
            self._end_rows(reason)
            self._become_done()
        finally:
            self._busy = False
        return True

    def finish(self, reason: str) -> None:
        """The program ends, or recording must: stop, and keep what there is."""
        if self.phase is Phase.ACTIVE:
            if not self._may_stop():
                self._ask_owner(reason)
                return
            self._end_rows(reason)
        elif self.phase is Phase.WARMUP and self._profiler is not None:
            self._profiler.abandon()
        elif self.phase is Phase.TIMED and self._clock is not None:
            self._close_timed()
        if not self.measured.stopped_by:
            self.measured.stopped_by = reason
        self._become_done()

    def disable(self) -> None:
        """Ignore every boundary from here on, and finish nothing."""
        self.phase = Phase.DONE
        self._done = _nothing

    # -- threads -------------------------------------------------------------------------------------------------

    def _own(self, mark: ThreadMark) -> None:
        self._owner = weakref.ref(mark, self._owner_ended)

    def _takes_over(self, mark: ThreadMark) -> bool:
        """Whether the steps are those of this thread from now on: the first, or the next after one that ended."""
        if self._owner is not None:
            if self._owner() is not None or not (self._may_stop() or self.phase in (Phase.SKIP, Phase.TIMED)):
                return False
            self._moved = True
        self._own(mark)
        return True

    def _may_stop(self) -> bool:
        """Whether the session, if there is one, can be stopped on this thread."""
        if self._profiler is None or self._profiler.of_all_threads:
            return True
        return self._owner is not None and self._owner() is this_thread()

    def _owner_ended(self, owner: weakref.ref[ThreadMark]) -> None:
        """The thread of the steps ends, and this is its last act: what only it can stop, it stops."""
        profiler = self._profiler
        if owner is not self._owner or profiler is None or profiler.of_all_threads or not self.attached:
            return
        with contextlib.suppress(Exception):
            self._busy = True
            if self.phase is Phase.ACTIVE:
                self._end_rows("thread ended")
            else:
                profiler.abandon()
                self.measured.stopped_by = "thread ended"
            self._become_done()

    def _ask_owner(self, reason: str) -> None:
        """Has the thread of the steps end the recording at its next boundary. LanewiseError if it comes to none."""
        self._wanted = reason
        if not self._over.wait(_LONGEST_WAIT):
            self.disable()
            raise LanewiseError("the thread that runs the steps is still in one, and only it can stop the profiler")

    # -- what a boundary does in each phase ----------------------------------------------------------------------

    def _skip(self) -> None:
        if self.steps < self.plan.skip:
            return
        if self.plan.timed_max == 0:
            self._begin_warmup()
            return
        self.phase = Phase.TIMED
        self._pace_before = self._pace()
        self._clock = StepClock(self._make_device(), marks=True, now=self._now)
        self._clock.open()

    def _time(self) -> None:
        clock = self._running_clock()
        if not _in_passing(clock, self.plan.timed_max) and self.plan.timed_enough(clock.host_ns):
            self._close_timed()
            self._begin_warmup()

    def _warm_up(self) -> None:
        self._annotation.end()
        if self.steps - self._at >= self.plan.warmup:
            self._begin_active()
        else:
            self._annotation.begin(self.steps)

    def _record(self) -> None:
        clock = self._running_clock()
        self._annotation.end()
        passing = not self._wanted and _in_passing(clock, self.plan.active_max)
        reason = (
            "" if passing else self._wanted or self.plan.recorded_enough(clock.host_ns) or self._too_large(clock.steps)
        )
        if reason:
            if self._end_rows(reason, more=True):
                self._begin_warmup()
            elif (meter := self._make_meter()) is not None:
                self.phase, self._meter = Phase.METERED, meter
            else:
                self._become_done()
        else:
            self._annotation.begin(self.steps)

    def _count_energy(self) -> None:
        if self._meter is not None and self._meter.boundary():
            self._become_done()

    # -- transitions ---------------------------------------------------------------------------------------------

    def _close_timed(self) -> None:
        clock = self._running_clock()
        clock.close()
        self._unprofiled_samples, _ = clock.samples()
        self.measured.unprofiled = clock.summary()
        self._clock = None
        paces = (self._pace_before, self._pace())
        self.measured.yardstick_us = sum(paces) / 2 if all(paces) else None

    def _begin_warmup(self) -> None:
        self._attach()
        self._at = self.steps
        if self.plan.warmup == 0:
            self._begin_active()
        else:
            self.phase = Phase.WARMUP
            self._annotation.begin(self.steps)

    def _attach(self) -> None:
        self._profiler, self._size = self._make_profiler(self._make_device(), self._moved)
        self._profiler.prepare()

    def _begin_active(self) -> None:
        self._begin_rows()
        self._annotation.begin(self.steps)

    def _begin_rows(self) -> None:
        device = self._make_device()
        round_trip = 0
        if self.plan.warmup:
            # It waits for the device: work of the warm-up steps would end inside the recording, and count for its first
            # step. The profiler listens already, so that what it adds to a round trip is known, too.
            round_trip = round_trip_ns(device, self._now)
        if self._profiler is None or self._size is None:
            raise AssertionError("rows begin after the profiler is attached")
        self._profiler.start()
        self._size.begin()
        self.measured.steps_before = max(self.steps, 0)
        self._clock = StepClock(device, marks=False, now=self._now)
        self._clock.open(round_trip)
        self.phase = Phase.ACTIVE

    def _too_large(self, steps: int) -> str:
        """`size` if one more step like the last ones would make the trace larger than allowed."""
        predicted = self._size.predicted() if self._size is not None else 0
        return "size" if predicted and predicted * (steps + 1) / steps > self.plan.trace_bytes else ""

    def _end_rows(self, reason: str, *, more: bool = False) -> bool:
        """Stops recording; whether it should be tried once more, where that can be."""
        clock, profiler = self._running_clock(), self._profiler
        if profiler is None:
            raise AssertionError("rows end after they began")
        clock.close()
        self.phase = Phase.DONE
        # An annotation that is still open belongs to a step that the program did not finish.
        self.measured.unfinished = self.steps if self._annotation.is_open else None
        self._annotation.end()
        profiler.stop()
        self.measured.active = clock.steps
        self.measured.stopped_by = reason
        self.measured.settled_after = settled_after(clock.host_ns)
        unsettled = self.measured.settled_after
        if unsettled is None:
            unsettled = clock.steps // 2
        samples, _ = clock.samples(unsettled)
        self.measured.profiled = clock.summary(unsettled)
        self.measured.interval = ratio_interval(samples, self._unprofiled_samples)
        self._clock = None
        return self._recorded(more)

    def _become_done(self) -> None:
        self.phase = Phase.DONE
        if self._meter is not None:
            self.measured.energy = self._meter.energy
        done, self._done = self._done, _nothing
        try:
            done()
        finally:
            self._over.set()

    def _running_clock(self) -> StepClock:
        if self._clock is None:
            raise AssertionError("this phase has a clock")
        return self._clock


def _in_passing(clock: StepClock, most: int) -> bool:
    """Whether to pass this boundary without a thought.

    To think takes longer than a tiny step and leaves the caches cold for the next: every fifth of them is enough.
    """
    return clock.last_ns < _TINY_NS and clock.steps % 5 != 0 and clock.steps < most


def _nothing() -> None:
    """What an already finished window does."""


_ON_BOUNDARY: dict[Phase, Callable[[Any], None]] = {
    Phase.SKIP: Window._skip,  # pyright: ignore[reportPrivateUsage]
    Phase.TIMED: Window._time,  # pyright: ignore[reportPrivateUsage]
    Phase.WARMUP: Window._warm_up,  # pyright: ignore[reportPrivateUsage]
    Phase.ACTIVE: Window._record,  # pyright: ignore[reportPrivateUsage]
    Phase.METERED: Window._count_energy,  # pyright: ignore[reportPrivateUsage]
}
