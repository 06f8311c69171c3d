"""The run of steps that is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanewise.trace.model import Trace

__all__ = ["SteadyRun"]


@dataclass(frozen=True, eq=False)
class SteadyRun:
    """The longest run of consecutive steady steps.

    Attributes:
        first, last: rows of the step table.
        begins: when each step begins on the host, ns. until: when the last one ends, ns.
        main_lane: the lane of the step marks, -1 without.
        head: how long after its beginning a single step begins, as the device still did work from before it, ns.
        held: when the streams (lanes) whose first operation waited for such work were free, ns.
    """

    first: int
    last: int
    begins: np.ndarray
    until: int
    main_lane: int
    head: int
    held: Mapping[int, int]

    @staticmethod
    def of(
        trace: Trace, steady: np.ndarray, *, done: int | None = None, head: int = 0, held: Mapping[int, int]
    ) -> SteadyRun:
        """The run; the keywords are those of `build_graph`."""
        steps = trace.steps
        chosen = steady if steady.any() else np.ones(len(steps), dtype=bool)
        follows = np.concatenate(([False], (np.diff(steps.number) == 1) & chosen[1:] & chosen[:-1]))
        number = np.where(chosen, np.cumsum(chosen & ~follows), 0)
        longest = int(np.argmax(np.bincount(number[chosen]))) if chosen.any() else 0
        rows = np.flatnonzero(number == longest)
        first, last = int(rows[0]), int(rows[-1])
        event = int(steps.event[first])
        lane = int(trace.lane[event]) if event >= 0 else -1
        begins, until = steps.start[first : last + 1], int(steps.end[last])
        if done is not None and not steps.recorded:
            until = done
        late = max(0, head - int(begins[0])) if len(steps) == 1 else 0
        return SteadyRun(first, last, begins, until, lane, late, held if first == 0 else {})

    @property
    def steps(self) -> int:
        return self.last - self.first + 1

    def holds(self, trace: Trace, events: np.ndarray) -> np.ndarray:
        """Whether each event belongs to the run."""
        step = trace.steps.of_event[events]
        return (step >= self.first) & (step <= self.last)
