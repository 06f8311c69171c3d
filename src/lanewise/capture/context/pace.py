"""Switches a collector on and off at the boundaries of steps, and keeps the time of steps with and without it."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

from lanewise.capture.context.collector import Collector
from lanewise.capture.context.profiler_windows import EVERY
from lanewise.capture.context.turns import AllSteps, StepTimes, Turns
from lanewise.capture.machine import energy_counter
from lanewise.capture.thread_identity import ThreadMark, this_thread
from lanewise.capture.timing.watch_budget import Budget
from lanewise.trace.metadata import Energy
from lanewise.tree.watching.watched import Distortion

__all__ = ["Pace"]


class Pace:
    """When a collector is on. The first thread that reports a boundary is the one whose steps count, and when it has
    ended the next.

    Args:
        turns: which steps are watched.
        look: called at the end of some watched steps, with the steps so far and those watched of them; returns the number
            of watched steps at which to call again.

    Attributes:
        steps_seen: boundaries so far. steps_on: how many of the steps before them were watched.
        start_up_steps: how many of these belong to the start-up.
    """

    def __init__(self, turns: Turns | Budget, look: Callable[[int, int], int] | None = None) -> None:
        self.steps_seen = 0
        self.steps_on = 0
        self._turns = turns
        self._collector: Collector | None = None
        self._times = StepTimes()
        self._all = AllSteps()
        self._owner: weakref.ref[ThreadMark] | None = None
        self._on = False
        self._pauses = 0
        self._warming = False
        self._on_since = 0
        self._on_ns = 0
        self._last = 0
        self._quiet_until = 0
        self.start_up_steps = 0
        self._counter: Callable[[], float | None] | None = None
        self._first_joules: tuple[float, float, int] | None = None
        self._look = look
        self._look_at = sys.maxsize
        self._switching = 0

    @property
    def energy(self) -> Energy | None:
        """What the device has drawn since the first step ended; None where it does not count, or no step followed."""
        if self._counter is None or self._first_joules is None or (joules := self._counter()) is None:
            return None
        before, at, steps = self._first_joules
        drawn, followed = joules - before, self.steps_seen - steps
        if drawn <= 0 or followed < 1:
            return None
        return Energy(joules=drawn, steps=followed, seconds=time.perf_counter() - at)

    @property
    def every(self) -> int:
        """Of how many steps some are watched; 0 if all are."""
        return self._turns.every

    @property
    def steps(self) -> int:
        """How many of them; 0 if all are."""
        return self._turns.steps if self._turns.every else 0

    @property
    def on_ns(self) -> int:
        """How long the collector has been on, ns."""
        return self._on_ns + (time.perf_counter_ns() - self._on_since if self._on else 0)

    def begin(self, collector: Collector) -> None:
        """The first step begins."""
        self._collector = collector
        if isinstance(self._turns, Turns) and collector.windowed and not self._turns.every:
            self._turns = replace(self._turns, every=EVERY)
        self._quiet_until = 0
        self._switch(self._turns.watched(0))

    def restart(self) -> None:
        """Another source of boundaries counts from here on."""
        self._last = 0

    def pause(self) -> None:
        """Steps are counted and not watched until as many calls of `resume`: a profiler of torch's will be attached. Errors
        are the collector's."""
        self._pauses += 1
        if self._pauses > 1:
            return
        self._switch(False)
        self._warming = False
        if self._collector is not None:
            self._collector.make_way()

    def resume(self) -> None:
        """Steps are watched as planned, from here on, or where the collector needs whole ones from the next."""
        self._pauses -= 1
        if self._pauses:
            return
        self._last = self._quiet_until = 0
        self._all = AllSteps()
        if self._collector is not None and not self._collector.windowed:
            self._switch(self._turns.watched(self.steps_seen))

    def boundary(self) -> None:
        """A step ended, and the next begins. Errors are the collector's."""
        collector = self._collector
        if collector is None:
            return
        mark, owner = this_thread(), self._owner() if self._owner is not None else None
        if owner is not mark:
            if owner is not None:
                return
            self._owner = weakref.ref(mark)
        step = self.steps_seen
        if self._pauses:
            self.steps_seen = step + 1
            return
        if step < self._quiet_until and self.steps_on + self._on < self._look_at:
            # Most steps by far: a tiny one would take as long as what follows.
            self.steps_seen = step + 1
            self.steps_on += self._on
            return
        now = time.perf_counter_ns()
        if self._last and not self._warming and self._turns.compared(step):
            self._times.add(now - self._last, on=self._on)
            if self._on:
                self._all.watched(now - self._last)
        if step >= self._turns.settled:
            self._all.passed(step + 1, now)
        self.steps_seen += 1
        self.steps_on += self._on
        try:
            if not step:
                collector.started_up()
                self._count_energy()
                self.start_up_steps = int(self._on)
            if self._look is not None and self.steps_seen > self._turns.settled and self._on:
                due = self.steps_on >= self._look_at or self._look_at == sys.maxsize
                # A window is looked at as a whole.
                if due and not (self._turns.every and self._turns.watched(step + 1)):
                    begin = time.perf_counter_ns()
                    with collector.uncounted():
                        self._look_at = self._look(self.steps_seen, self.steps_on)
                    self._switching += time.perf_counter_ns() - begin
            self._switch(self._turns.watched(step + 1))
            if isinstance(self._turns, Budget):
                self._turns.ended(step + 1, *self._times.both, self._switching)
                if not self._on:
                    self._switching = 0
            self._warming = collector.windowed and not self._on and self._turns.watched(step + 2)
            if self._warming:
                collector.ready()
            self._quiet_until = self._turns.quiet_until(step + 1)
        finally:
            # The step after a quiet stretch has no beginning that was timed.
            done = time.perf_counter_ns()
            self._all.ours(done - now)
            self._last = done if step + 1 >= self._quiet_until else 0

    def _count_energy(self) -> None:
        self._counter = energy_counter()
        joules = None if self._counter is None else self._counter()
        self._first_joules = None if joules is None else (joules, time.perf_counter(), self.steps_seen)

    def end(self) -> None:
        """Off, for good."""
        self._pauses += 1
        self._switch(False)

    @property
    def short_steps(self) -> bool:
        """Whether steps are so short that noticing them may matter."""
        return self._times.short

    @property
    def unseen(self) -> float:
        """Share of the time of all steps that those that were watched know nothing of; see `AllSteps`."""
        found = self.distortion()
        # Of a factor that is not known well, no more than what is certain of it.
        return self._all.unseen(max(1.0, found.low) if found is not None else 1.0)

    def distortion(self, around: float = 0.0, within: float = 0.0) -> Distortion | None:
        """What watching did to the step time, if that can be told; arguments as of `StepTimes.distortion`."""
        return self._times.distortion(around, within)

    def _switch(self, on: bool) -> None:
        collector = self._collector
        if collector is None or on == self._on:
            return
        begin = time.perf_counter_ns()
        if on:
            collector.on()
            self._on_since = begin
        else:
            collector.off()
            self._on_ns += time.perf_counter_ns() - self._on_since
        self._switching += time.perf_counter_ns() - begin
        self._on = on
