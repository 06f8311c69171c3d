"""The run of steps that is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["SteadyRun"]


@dataclass(frozen=True, eq=False)
class SteadyRun:
    """The longest run of consecutive steady steps: rows `first` to `last` of the step table; `begins` is when each begins
    on the host, `until` when the last one ends, ns."""

    first: int
    last: int
    begins: np.ndarray
    until: int
    main_lane: int

    @staticmethod
    def of(trace: Trace, steady: np.ndarray) -> SteadyRun:
        steps = trace.steps
        chosen = steady if steady.any() else np.ones(len(steps), dtype=bool)
        follows = np.concatenate(([False], (np.diff(steps.number) == 1) & chosen[1:] & chosen[:-1]))
        number = np.where(chosen, np.cumsum(chosen & ~follows), 0)
        longest = int(np.argmax(np.bincount(number[chosen]))) if chosen.any() else 0
        rows = np.flatnonzero(number == longest)
        first, last = int(rows[0]), int(rows[-1])
        event = int(steps.event[first])
        lane = int(trace.lane[event]) if event >= 0 else -1
        return SteadyRun(first, last, steps.start[first : last + 1], int(steps.end[last]), lane)

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    def holds(self, trace: Trace, events: np.ndarray) -> np.ndarray:
        """Whether each event belongs to the run."""
        step = trace.steps.of_event[events]
        return (step >= self.first) & (step <= self.last)
