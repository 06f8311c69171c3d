"""How many steps to pass, time, warm up for and record, and when the recorded ones are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.record.clock import quantile

__all__ = ["Plan", "settled_after"]

_GROUP = 5
"""Steps per group when two groups are compared for a trend."""

_SETTLED = 0.05
"""Two consecutive groups whose medians differ by less count as settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The course of a recording, in steps.

    Attributes:
        skip: first steps neither timed nor recorded: they compile, autotune and fill caches.
        timed_min, timed_max: un-profiled steps to time; between the two it ends once `timed_seconds` have passed or the
            times are steady.
        warmup: steps with the profiler attached and its rows thrown away.
        active_min, active_max: steps to record; between the two it ends once the host times settle.
        active_seconds: recording ends at the first boundary after this much host time, whatever else holds.
        after: un-profiled steps to time when recording is over; 0 for none.
        trace_bytes: size that the trace file must not exceed before compression.
    """

    skip: int = 3
    timed_min: int = 5
    timed_max: int = 50
    timed_seconds: float = 1.0
    warmup: int = 2
    active_min: int = 10
    active_max: int = 40
    active_seconds: float = 3.0
    after: int = 20
    trace_bytes: int = 200_000_000

    def timed_enough(self, times_ns: Sequence[int]) -> bool:
        """Whether the un-profiled step time is known well enough."""
        n = len(times_ns)
        if n < self.timed_min:
            return False
        if n >= self.timed_max or sum(times_ns) >= self.timed_seconds * 1e9:
            return True
        return n >= 2 * _GROUP and sum(times_ns) >= 20e6 and _steady(times_ns)

    def recorded_enough(self, times_ns: Sequence[int]) -> str:
        """`settled`, `cap` or `time` when recording should end at this boundary, else an empty text."""
        n = len(times_ns)
        if n >= self.active_max:
            return "cap"
        if n >= min(3, self.active_min) and sum(times_ns) >= self.active_seconds * 1e9:
            return "time"
        if n >= self.active_min and settled_after(times_ns) is not None:
            return "settled"
        return ""


def settled_after(times_ns: Sequence[int]) -> int | None:
    """Number of steps before the last two groups of five, if these agree within 5 %; else None.

    Host times fall for the first recorded steps (on an H100: 3184, 131, 75, 71 ... 56 us from the ninth on): the profiler
    allocates its buffers and the processor caches fill. A median over all of them says nothing about the host.
    """
    if len(times_ns) < 2 * _GROUP:
        return None
    before = quantile(times_ns[-2 * _GROUP : -_GROUP], 0.5)
    last = quantile(times_ns[-_GROUP:], 0.5)
    return len(times_ns) - 2 * _GROUP if abs(before - last) <= _SETTLED * max(before, 1) else None


def _steady(times_ns: Sequence[int]) -> bool:
    recent = times_ns[-2 * _GROUP :]
    return quantile(recent, 0.8) <= 1.1 * quantile(recent, 0.2)
