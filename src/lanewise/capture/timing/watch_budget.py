"""A plan of steps that keeps to a budget: how often to watch follows from what watching has cost so far.

A step in each stretch of the run is chosen by chance, so that nothing that comes every so many steps is seen always or
never; a window is a few steps in a row. The first windows come often, to learn what one costs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from lanewise.capture.timing.clock import quantile

__all__ = ["Budget"]

_STEPS = 8
"""Of a window. The first step after switching on finds nothing of the collector in the processor's caches, and its places
with many operators take longer: with four steps the share of an optimizer was 3.5 points off, with eight 0.7."""
_BEFORE = 4
"""Steps before a window that are timed to compare it with."""
_LEARNING = 5
_FIRST_STRETCH = 60
_LONGEST_STRETCH = 100_000
_GROWTH = 2
"""Times as long as the last stretch at most: a few windows of a busy machine would else put the next one off by thousands
of steps, and with it what corrects them."""
_LEAST = 0.03
"""Of a step: watching is taken to cost at least that much, whatever a few steps seem to say."""


class Budget:
    """Which steps are watched.

    Args:
        share: of the run's time that watching may cost, 0.01 for 1 %.
        skip: first steps, which compile and fill caches: neither watched nor timed.
        seed: of the choice of steps.

    Attributes:
        every, steps: watched are `steps` of `every` steps at present.
        pairs: steps left out to measure the cost by, beside watched ones where all are watched: none here.
        settled: the first step after those skipped.
    """

    pairs = 0

    def __init__(self, share: float, *, skip: int = 5, seed: int = 0) -> None:
        self.share = share
        self.every, self.steps = _FIRST_STRETCH, _STEPS
        self.settled = skip
        self._random = random.Random(seed)
        self._stretch = skip
        self._begin = self._place(skip)
        self._switching: list[float] = []
        self._within: list[list[int]] = []
        self._windows = 0

    def _place(self, stretch: int) -> int:
        # Steps to compare it with come before it, and a step to get ready.
        return stretch + self._random.randint(_BEFORE + 1, self.every - self.steps)

    def watched(self, step: int) -> bool:
        """Whether a step is watched; asked of none that is more than a window ahead."""
        return self._begin <= step < self._begin + self.steps

    def compared(self, step: int) -> bool:
        """Whether the time of a step says something about what watching costs."""
        return self._begin - _BEFORE <= step < self._begin + self.steps

    def quiet_until(self, step: int) -> int:
        """The first step, from `step` on, at whose begin or end there is something to do."""
        return max(step, self._begin - _BEFORE - 1)

    def ended(self, step: int, on: Sequence[int], off: Sequence[int], switching: float) -> None:
        """The step before `step` has ended, and may have been the last of a window: plan the next one.

        Args:
            step: the one that begins. on, off: times of watched steps, and of those before them, ns.
            switching: what switching on and off and looking took for this window, ns.
        """
        if step != self._begin + self.steps:
            return
        self._windows += 1
        self._switching = [*self._switching[-15:], switching]
        self._within = [*self._within[-15:], list(on)[-self.steps :]]
        self._stretch += self.every
        if self._windows >= _LEARNING and len(on) >= 8 and len(off) >= 8:
            self.every = min(self._needed(off), _GROWTH * self.every)
        self._begin = self._place(max(self._stretch, step))

    def _needed(self, off: Sequence[int]) -> int:
        usual = max(1.0, quantile(list(off), 0.5))
        # The first step of a window finds cold caches and takes longer than the others; any step may be interrupted.
        whole = sum(quantile(list(alike), 0.5) for alike in zip(*self._within, strict=False))
        more = max(_LEAST * self.steps * usual, whole - self.steps * usual)
        window = more + quantile(self._switching, 0.5)
        # What is spent and what there is to spend of the time of so many steps.
        needed = math.ceil(window / (self.share * usual))
        return min(max(needed, _BEFORE + self.steps + 2), _LONGEST_STRETCH)
