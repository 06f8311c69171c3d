"""Which steps are watched: all, or a few of every many; and what the steps on either side took.

Where all are watched, some early ones are left out in turn. That is what tells, in the same run, what watching costs.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.capture.timing.clock import quantile
from lanewise.capture.timing.distortion import ratio_interval
from lanewise.tree.watching.watched import Distortion

__all__ = ["AllSteps", "StepTimes", "Turns"]

_SAMPLES = 400
"""Step times kept on either side; the latest ones."""

_SHORT_NS = 1e6


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
        if not self.every:
            return 0 <= place < 2 * self.pairs
        # Watched ones, and as many before them as it takes to tell: every step that is timed costs something.
        return place >= 0 and (place % self.every < self.steps or place % self.every >= self.every - self._before)

    @property
    def _before(self) -> int:
        return max(self.steps, 2)

    @property
    def settled(self) -> int:
        """The first step after those that say what watching costs; with a duty cycle, after the first ones."""
        return self.skip if self.every else self.skip + 2 * self.pairs

    def quiet_until(self, step: int) -> int:
        """The first step, from `step` on, at whose begin or end there is something to do."""
        place = step - self.skip
        if not self.every:
            return step if place <= 2 * self.pairs else sys.maxsize
        into = place % self.every
        if place < 0 or into <= self.steps:
            return step
        return max(step, step - into + self.every - self._before - 1)


class AllSteps:
    """How long all steps took beside those that were watched: what takes long and comes rarely may be in none of these.

    From the first call of `passed` on; all times in ns.
    """

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._steps = self._ns = 0
        self._watched_steps = self._watched_ns = self._ours_ns = 0

    def passed(self, steps: int, now: int) -> None:
        """So many steps have ended by now."""
        if self._first is None:
            self._first = steps, now
        self._steps, self._ns = steps - self._first[0], now - self._first[1]

    def watched(self, ns: int) -> None:
        """A watched step took so long."""
        if self._first is not None:
            self._watched_steps += 1
            self._watched_ns += ns

    def ours(self, ns: int) -> None:
        """Between two steps watching itself took so long."""
        if self._first is not None:
            self._ours_ns += ns

    def unseen(self, slowed: float) -> float:
        """Share of the time of all steps that those that were watched know nothing of; 0 where they took as long.

        Args:
            slowed: what watching multiplies the time of a step with.
        """
        if not self._watched_steps or not self._steps:
            return 0.0
        added = self._watched_ns * (1 - 1 / slowed) + self._ours_ns
        each = max(1.0, (self._ns - added) / self._steps)
        return max(0.0, 1 - self._watched_ns / slowed / self._watched_steps / each)


class StepTimes:
    """Times of watched steps and of the others."""

    def __init__(self) -> None:
        self._on: deque[int] = deque(maxlen=_SAMPLES)
        self._off: deque[int] = deque(maxlen=_SAMPLES)

    def add(self, ns: int, *, on: bool) -> None:
        """A step took so long."""
        (self._on if on else self._off).append(ns)

    @property
    def both(self) -> tuple[Sequence[int], Sequence[int]]:
        """Times of watched steps, and of the others, ns; the latest ones."""
        return self._on, self._off

    @property
    def short(self) -> bool:
        """Whether steps are so short that noticing them may matter."""
        return bool(self._off) and quantile(list(self._off), 0.5) < _SHORT_NS

    def distortion(self, around: float = 0.0, within: float = 0.0) -> Distortion | None:
        """What watching did to the step time; None with fewer than five steps on a side.

        Args:
            around, within: what noticing a step costs, ns: as part of all step times, and between two of them.
        """
        on = [max(1.0, ns + within) for ns in self._on]
        off = [max(1.0, ns - around) for ns in self._off]
        interval = ratio_interval(on, off)
        if interval is None:
            return None
        ratio = quantile(on, 0.5) / max(quantile(off, 0.5), 1.0)
        return Distortion(
            ratio=round(ratio, 4),
            low=round(interval[0], 4),
            high=round(interval[1], 4),
            on=len(on),
            off=len(off),
            step_ns=round(quantile(off, 0.5), 1),
            notice_ns=round(around + within, 1),
        )
