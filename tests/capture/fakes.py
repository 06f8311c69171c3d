"""A profiler, a device and a clock that exist on paper only, for testing the course of a recording without torch."""

from __future__ import annotations

import threading

from lanewise.capture.accelerator import Device
from lanewise.capture.schedule import Plan
from lanewise.capture.timing.clock import StepClock
from lanewise.capture.window import Meter, Window


class FakeTime:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.ns = 1_000

    def now(self) -> int:
        return self.ns

    def pass_us(self, us: float) -> None:
        self.ns += int(us * 1000)


class FakeDevice:
    """A device with a queue: work is submitted with a length, and waiting moves the clock to its end."""

    def __init__(self, time: FakeTime, name: str = "cuda", answers_after_us: float = 0.0) -> None:
        self.name = name
        self.answers_after_us = answers_after_us
        self.time = time
        self.busy_until = 0
        self.synchronized = 0

    def submit(self, us: float) -> None:
        self.busy_until = max(self.busy_until, self.time.ns) + int(us * 1000)

    def synchronize(self) -> None:
        self.synchronized += 1
        self.time.ns = max(self.time.ns, self.busy_until) + int(self.answers_after_us * 1000)

    def mark(self) -> int:
        return max(self.busy_until, self.time.ns)

    def between_us(self, first: int, second: int) -> float:
        return (second - first) / 1000


class FakeProfiler:
    """Writes down what is asked of it, and on which threads it is stopped."""

    def __init__(self, log: list[str], of_all_threads: bool, stopped_on: list[int]) -> None:
        self.log = log
        self.of_all_threads = of_all_threads
        self.stopped_on = stopped_on

    def prepare(self) -> None:
        self.log.append("prepare")

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.stopped_on.append(threading.get_ident())
        self.log.append("stop")

    def abandon(self) -> None:
        self.log.append("abandon")


class FakeSize:
    """A trace that grows by a fixed number of bytes per recorded step."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.begun_at = 0

    def begin(self) -> None:
        self.begun_at = self.bench.window.steps

    def observe(self) -> None:
        self.bench.log.append("observe")

    def predicted(self, *, inside: bool = False) -> int:
        return (self.bench.window.steps - self.begun_at) * self.bench.bytes_per_step + self.bench.bytes


class FakeAnnotation:
    """Step annotations as text."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.is_open = False

    def begin(self, step: int) -> None:
        self.is_open = True
        self.log.append(f"step {step}")

    def end(self) -> None:
        self.is_open = False


class Bench:
    """A window among fakes. `log` tells what happened, in order."""

    def __init__(self, plan: Plan, *, bytes_per_step: int = 0) -> None:
        self.log: list[str] = []
        self.bytes_per_step = bytes_per_step
        self.bytes = 0
        self.again = False
        self.of_all_threads = False
        self.stopped_on: list[int] = []
        self.meter: Meter | None = None
        self.paces: list[float] = []
        self.time = FakeTime()
        self.device = FakeDevice(self.time, "cpu")
        self.window = Window(
            plan,
            profiler=self._session,
            device=lambda: self.device,
            annotation=FakeAnnotation(self.log),
            recorded=self._recorded,
            done=lambda: self.log.append("done"),
            meter=lambda: self.meter,
            pace=self._pace,
            now=self.time.now,
        )

    def _session(self, _: Device, all_threads: bool) -> tuple[FakeProfiler, FakeSize]:
        self.of_all_threads = all_threads
        return FakeProfiler(self.log, all_threads, self.stopped_on), FakeSize(self)

    def _pace(self) -> float:
        """The next of `paces`, or 0; it takes a millisecond."""
        self.time.pass_us(1000)
        return self.paces.pop(0) if self.paces else 0.0

    def _recorded(self, more: bool) -> bool:
        self.log.append("recorded")
        again, self.again = self.again and more, False
        return again

    def steps(self, count: int, us: float = 100.0, profiled_us: float | None = None) -> None:
        """`count` steps, longer while a profiler is attached."""
        for _ in range(count):
            self.time.pass_us(us if profiled_us is None or not self.window.recording else profiled_us)
            self.window.boundary()


def clock_of(device: FakeDevice, *, marks: bool = False) -> StepClock:
    """A step clock on fake time."""
    return StepClock(device, marks=marks, now=device.time.now)
