"""Step times on one clock, the same for profiled and un-profiled steps.

A step lasts from boundary to boundary, without what the recorder does at a boundary: to mark a step and to decide takes
5 to 40 us of host time, which is neither the program's nor lengthened by the profiler, and differs from tool to tool.

A host timestamp per step boundary costs 0.1 us and is right while the device keeps up. When the host runs ahead it
measures submission, not work. The two cases are told apart by how long the device still works after the last boundary:
at most a fraction of a step, or a queue of whole steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from lanewise.capture.accelerator import Device
from lanewise.trace.metadata import StepTimes

_LIMITS = 1.05
"""The device limits where the stretch up to its last work is longer by more than this than the host's steps are."""

__all__ = ["StepClock", "quantile", "round_trip_ns"]

_MARK_EVERY_NS = 1_000_000
"""A device timestamp costs the host 2 to 4 us, so at most one per millisecond keeps it below 0.4 % of the time."""

_KEEPS_UP_US = 50.0
"""A device that is done within a step, or within this, after the last boundary keeps up."""


def round_trip_ns(device: Device, now: Callable[[], int] = time.perf_counter_ns) -> int:
    """From submitting a timestamp to an idle device until the host knows that it is done: the least of three.

    20 us on most machines, some hundreds on virtual ones: no work of the program, and longer than many a step.
    """
    device.synchronize()
    trips: list[int] = []
    for _ in range(3):
        begun = now()
        if device.mark() is None:
            return 0
        device.synchronize()
        trips.append(now() - begun)
    return min(trips)


class StepClock:
    """Times a run of consecutive steps: `open()` at a boundary, `tick()` at each following one, `close()` at the last.

    `resume()` at the end of a boundary keeps what the recorder did there out of the next step.

    `open` and `close` synchronise the device; the round trip that this takes on an idle one is no time of the steps.
    With `marks` the spread is known for device-limited steps too, at the price of an event record per millisecond, which
    would show in a trace: leave it off while recording.
    """

    def __init__(self, device: Device, *, marks: bool, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._device = device
        self._with_marks = marks
        self._now = now
        self._stamps: list[int] = []
        self._begun: list[int] = []
        self._marks: list[tuple[int, Any]] = []
        self._drain_ns = 0
        self._round_trip_ns = 0
        self._end_mark: Any = None

    @property
    def steps(self) -> int:
        """Complete steps so far."""
        return max(0, len(self._stamps) - 1)

    @property
    def elapsed_ns(self) -> int:
        """Host time since `open`, up to the last boundary."""
        return self._stamps[-1] - self._stamps[0] if self._stamps else 0

    @property
    def since_open_ns(self) -> int:
        """Host time since `open`, up to now."""
        return self._now() - self._stamps[0] if self._stamps else 0

    @property
    def host_ns(self) -> list[int]:
        """Host time of each step."""
        return [end - begin for begin, end in zip(self._begun, self._stamps[1:], strict=False)]

    @property
    def last_ns(self) -> int:
        """Host time of the last complete step; 0 without one."""
        return self._stamps[-1] - self._begun[len(self._stamps) - 2] if self.steps else 0

    def open(self, round_trip: int | None = None) -> None:
        """Wait for the device, then start the first step; at once where its round trip (ns) is known already."""
        self._round_trip_ns = round_trip_ns(self._device, self._now) if round_trip is None else round_trip
        mark = self._device.mark() if self._with_marks else None
        self._stamps = [self._now()]
        self._begun = list(self._stamps)
        self._marks = [] if mark is None else [(0, mark)]

    def tick(self, stamp: int | None = None) -> None:
        """A step ended and the next began, at `stamp` or now."""
        if stamp is None:
            stamp = self._now()
        self._stamps.append(stamp)
        self._begun.append(stamp)
        if self._marks and stamp - self._stamps[self._marks[-1][0]] >= _MARK_EVERY_NS:
            mark = self._device.mark()
            if mark is not None:
                self._marks.append((len(self._stamps) - 1, mark))

    def resume(self) -> None:
        """The recorder is done at this boundary; the next step begins now."""
        if self._begun:
            self._begun[-1] = self._now()

    def close(self) -> None:
        """Wait for the device after the last boundary; the length of the wait tells who is ahead."""
        if self._marks and self.steps:
            self._end_mark = self._device.mark()
        self._device.synchronize()
        if self._stamps:
            self._drain_ns = max(0, self._now() - self._stamps[-1] - self._round_trip_ns)

    def samples(self, skip: int = 0) -> tuple[list[float], str]:
        """Times per step in microseconds, the first `skip` steps left out, and the method that gave them."""
        host = [ns / 1000.0 for ns in self.host_ns[skip:]]
        drain = self._drain_ns / 1000.0
        if not host or self._device.name == "cpu" or drain <= max(_KEEPS_UP_US, quantile(host, 0.5)):
            return host, "host"
        blocks = self._device_blocks(skip)
        if len(blocks) >= 3:
            return blocks, "device"
        stretch = self._stretch_us()
        # Between two boundaries of the host, what the recorder did there included: it hides behind a busy device only.
        walls = [(later - stamp) / 1000.0 for stamp, later in pairwise(self._stamps)]
        if stretch <= _LIMITS * quantile(walls, 0.5):
            return host, "host"
        return [stretch], "mean"

    def _stretch_us(self) -> float:
        """Time per step of a device that works without a pause.

        From any boundary on, the device takes at least as long as it needs for the steps that follow. So each such
        stretch is an upper bound of the time per step, and the least of them, over at least half the steps, leaves out
        a stall of the host at the beginning.
        """
        count = len(self._stamps) - 1
        end = self._stamps[-1] + self._drain_ns
        bounds = [(end - self._stamps[at]) / 1000.0 / (count - at) for at in range(count // 2 + 1)]
        if self._end_mark is not None and self._marks:
            # The host may be told late that the device is done; the device's own stamps are not.
            at, mark = self._marks[0]
            bounds.append(self._device.between_us(mark, self._end_mark) / (count - at))
        return min(bounds)

    def summary(self, skip: int = 0) -> StepTimes | None:
        """`samples` as median and spread; None without a complete step."""
        samples, method = self.samples(skip)
        if not samples:
            return None
        behind = self._behind_us() if method == "host" and not skip else []
        return _times(samples, self.steps - skip, method, behind)

    def _behind_us(self) -> list[float]:
        """How long after each boundary but the first the device was done with what had been submitted until then, us.

        Both clocks begin at the first boundary, where the device was idle. None unless every boundary has its mark.
        """
        if len(self._marks) < 2 or len(self._marks) != len(self._stamps):
            return []
        _, first = self._marks[0]
        device = [self._device.between_us(first, mark) for _, mark in self._marks[1:]]
        host = [(stamp - self._stamps[0]) / 1000.0 for stamp in self._stamps[1:]]
        return [max(0.0, there - here) for there, here in zip(device, host, strict=True)]

    def _device_blocks(self, skip: int) -> list[float]:
        kept = [(at, mark) for at, mark in self._marks if at >= skip]
        return [
            self._device.between_us(mark, later) / (later_at - at) for (at, mark), (later_at, later) in pairwise(kept)
        ]


def quantile(values: Sequence[float], share: float) -> float:
    """The value at `share` of the sorted values, interpolated; values must not be empty."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _times(samples: Sequence[float], steps: int, method: str, behind: Sequence[float]) -> StepTimes:
    return StepTimes(
        median_us=round(quantile(samples, 0.5), 3),
        p20_us=round(quantile(samples, 0.2), 3),
        p80_us=round(quantile(samples, 0.8), 3),
        samples=len(samples),
        steps=steps,
        method=method,
        times_us=tuple(round(sample, 3) for sample in samples),
        behind_us=tuple(round(one, 3) for one in behind),
    )
