"""What a device draws, by its own counter, read at the boundaries of steps.

The counter moves in jumps some tens of milliseconds apart. So a stretch begins and ends where it was seen to have moved,
and lasts long enough that a jump more or less hardly matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lanewise.capture.machine import energy_counter
from lanewise.trace.metadata import Energy

__all__ = ["Meter", "open_meter"]

_SETTLES_S = 0.3
"""Until the device is as warm and as busy as the program keeps it: to save a trace may have taken seconds."""
_EVERY_S = 0.01
"""To read the counter takes tens of microseconds."""
_ENOUGH_S, _LEAST_S, _MOST_S = 2.0, 0.5, 8.0
_LEAST_STEPS = 3


@dataclass(frozen=True)
class _Seen:
    """The counter just after it moved: J, when, and after how many steps."""

    joules: float
    at: float
    steps: int


class Meter:
    """Counts energy over steps.

    Args:
        read: the counter, J. now: the clock, s.
    """

    def __init__(self, read: Callable[[], float | None], now: Callable[[], float] = time.perf_counter) -> None:
        self._read = read
        self._now = now
        self._begun = now()
        self._next = self._begun + _SETTLES_S
        self._steps = 0
        self._before: float | None = None
        self._first: _Seen | None = None
        self._last: _Seen | None = None

    def boundary(self) -> bool:
        """A step ended; whether that was enough of them."""
        self._steps += 1
        now = self._now()
        if now < self._next:
            return False
        joules = self._read()
        if joules is None:
            return True
        # The clock again: what is slow is the reading.
        self._next = self._now() + _EVERY_S
        if self._before is not None and joules > self._before:
            seen = _Seen(joules, now, self._steps)
            self._first, self._last = self._first or seen, seen
        self._before = joules
        if now - self._begun >= _MOST_S:
            return True
        if self._first is None or self._last is None:
            return False
        enough = self._last.at - self._first.at >= _ENOUGH_S
        return enough and self._last.steps - self._first.steps >= _LEAST_STEPS

    @property
    def energy(self) -> Energy | None:
        """Over the stretch so far; None while it is too short to tell."""
        first, last = self._first, self._last
        if first is None or last is None or last.at - first.at < _LEAST_S or last.steps <= first.steps:
            return None
        return Energy(
            joules=round(last.joules - first.joules, 3),
            steps=last.steps - first.steps,
            seconds=round(last.at - first.at, 6),
        )


def open_meter() -> Meter | None:
    """A meter of the device in use; None where none counts."""
    counter = energy_counter()
    return None if counter is None else Meter(counter)
