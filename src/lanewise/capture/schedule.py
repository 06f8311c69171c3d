"""How many steps to pass, time, warm up for and record, and when the recorded ones are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lanewise.capture.timing.clock import quantile

_LEAST_NS = 10_000_000
"""Less than 10 ms of steps are not called steady before there are twenty of them: ten steps of tens of microseconds
find every cache still cold."""

__all__ = ["Plan", "settled_after"]

_GROUP = 5
"""Steps per group when two groups are compared for a trend."""

_JOB_SECONDS = 60.0
"""Recording a rank of several is cut by time only where its steps take very long: its times are not those of the others."""

_SETTLED = 0.05
"""Two consecutive groups whose medians differ by less count as settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The course of a recording, in steps.

    Attributes:
        skip: first steps neither timed nor recorded: they compile, autotune and fill caches.
        timed_min, timed_max: un-profiled steps to time; between the two it ends once `timed_seconds` have passed or the
            times are steady. Times that never are must leave steps to record: many a script has thirty in all.
        warmup: steps with the profiler attached and its rows thrown away.
        active_min, active_max: steps to record; between the two it ends once the host times settle.
        active_seconds: recording ends at the first boundary after this much host time, whatever else holds.
        trace_bytes: size that the trace file must not exceed before compression.
    """

    skip: int = 3
    timed_min: int = 5
    timed_max: int = 20
    timed_seconds: float = 1.0
    warmup: int = 2
    active_min: int = 10
    active_max: int = 40
    active_seconds: float = 3.0
    trace_bytes: int = 200_000_000

    @property
    def least_steps(self) -> int:
        """Steps that a program must have for a recording of the shortest sound kind."""
        return self.skip + self.timed_min + self.warmup + self.active_min

    def fitted(self, steps: int) -> Plan:
        """The plan for a program that is known to have so many steps: every part shrinks, recording last."""
        if steps >= self.least_steps + 2:
            # Tiny steps would be timed until none is left to record.
            most = max(self.timed_min, steps - self.skip - self.warmup - self.active_min - 2)
            return replace(self, timed_max=min(self.timed_max, most))
        skip = min(self.skip, 1)
        warmup = min(self.warmup, 1)
        timed = min(self.timed_min, max(0, (steps - skip - warmup) // 3))
        active = max(1, steps - skip - warmup - timed - 1)
        return replace(self, skip=skip, timed_min=timed, timed_max=timed, warmup=warmup, active_min=active)

    def in_step(self) -> Plan:
        """The plan for one rank of several: by number of steps alone, so that all of them are timed and recorded over the
        same ones. A rank that is recorded by itself is in its profiler while the others wait for it."""
        return replace(
            self,
            # Who is early and by how much differs from step to step.
            timed_min=self.timed_max,
            active_max=self.active_min,
            active_seconds=max(self.active_seconds, _JOB_SECONDS),
        )

    def timed_enough(self, times_ns: Sequence[int]) -> bool:
        """Whether the un-profiled step time is known well enough."""
        n = len(times_ns)
        if n < self.timed_min:
            return False
        if n >= self.timed_max or sum(times_ns) >= self.timed_seconds * 1e9:
            return True
        return n >= _least_steps(times_ns) and _steady(times_ns)

    def recorded_enough(self, times_ns: Sequence[int]) -> str:
        """`settled`, `cap` or `time` when recording should end at this boundary, else an empty text."""
        n = len(times_ns)
        if n >= self.active_max:
            return "cap"
        if n >= min(3, self.active_min) and sum(times_ns) >= self.active_seconds * 1e9:
            return "time"
        least = _least_steps(times_ns) if self.active_min < self.active_max else 0
        if n >= max(self.active_min, least) and settled_after(times_ns) is not None:
            return "settled"
        return ""


def settled_after(times_ns: Sequence[int]) -> int | None:
    """Number of steps before the last two groups of five, if these agree within 5 %; else None.

    Host times fall for the first recorded steps (on an H100: 3184, 131, 75, 71 ... 56 us from the ninth on): the
    profiler allocates its buffers and the processor caches fill. A median over all of them says nothing about the
    host.
    """
    if len(times_ns) < 2 * _GROUP:
        return None
    before = quantile(times_ns[-2 * _GROUP : -_GROUP], 0.5)
    last = quantile(times_ns[-_GROUP:], 0.5)
    return len(times_ns) - 2 * _GROUP if abs(before - last) <= _SETTLED * max(before, 1) else None


def _least_steps(times_ns: Sequence[int]) -> int:
    return 2 * _GROUP if sum(times_ns) >= _LEAST_NS else 4 * _GROUP


def _steady(times_ns: Sequence[int]) -> bool:
    recent = times_ns[-2 * _GROUP :]
    return quantile(recent, 0.8) <= 1.1 * quantile(recent, 0.2)
