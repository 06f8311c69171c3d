"""Which steps are watched: all, or a few of every many; and what the steps on either side took.

Where all are watched, some early ones are left out in turn. That is what tells, in the same run, what watching costs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lanewise.capture.timing.clock import quantile
from lanewise.capture.timing.distortion import ratio_interval
from lanewise.tree.watched import Distortion

__all__ = ["StepTimes", "Turns"]

_SAMPLES = 400
"""Step times kept on either side; the latest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """A plan of steps.

    Attributes:
        every, steps: watch `steps` of every `every` steps; all of them with `every` 0.
        skip: first steps, which compile and fill caches: watched if all are, never measured.
        pairs: steps to leave out, each beside a watched one, to measure what watching costs; 0 for none.
    """

    every: int = 0
    steps: int = 1
    skip: int = 5
    pairs: int = 20

    def watched(self, step: int) -> bool:
        """Whether step `step` (from 0) is watched."""
        place = step - self.skip
        if self.every:
            return place >= 0 and place % self.every < self.steps
        # on off off on, so that a drift hits both sides alike.
        return not 0 <= place < 2 * self.pairs or place % 4 in (0, 3)

    def compared(self, step: int) -> bool:
        """Whether the time of step `step` says something about what watching costs."""
        place = step - self.skip
        return place >= 0 and (bool(self.every) or place < 2 * self.pairs)


class StepTimes:
    """Times of watched steps and of the others."""

    def __init__(self) -> None:
        self._on: deque[int] = deque(maxlen=_SAMPLES)
        self._off: deque[int] = deque(maxlen=_SAMPLES)

    def add(self, ns: int, *, on: bool) -> None:
        """A step took so long."""
        (self._on if on else self._off).append(ns)

    def distortion(self) -> Distortion | None:
        """What watching did to the step time; None with fewer than five steps on a side."""
        on, off = list(self._on), list(self._off)
        interval = ratio_interval(on, off)
        if interval is None:
            return None
        ratio = quantile(on, 0.5) / max(quantile(off, 0.5), 1.0)
        return Distortion(
            ratio=round(ratio, 4), low=round(interval[0], 4), high=round(interval[1], 4), on=len(on), off=len(off)
        )
