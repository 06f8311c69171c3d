"""Recurring gaps: between the same two operators the program does something else, several times in each step.

Each of them may be far too short to be worth a word. Python that runs once per layer, per sample or per parameter adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.group_keys import combined
from lanewise.measure.launch.bubbles import loader_rows
from lanewise.measure.launch.host_lanes import dispatching
from lanewise.measure.loops.sequences import outer_operators
from lanewise.replay.undistort import COSTS, LEFT_OF_FRAMES, TYPICAL
from lanewise.trace.intervals import covered, merge, union
from lanewise.trace.schema import Kind

__all__ = ["Gaps", "recurring_gaps"]

# What a gap takes that is the interpreter's and torch's way from one operator to the next: so many of all gaps are shorter.
_USUAL = 0.25
# So many times as long as what is usual in this program: its host may be slow, and its modules may be deep.
_TIMES_AS_LONG = 5.0


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps that recur in steady steps, of all places together, shape (gaps,).

    Attributes:
        start, end: what each takes beyond the usual way from one operator to the next, ns as recorded.
        length: of that, without what recording Python frames costs, ns.
        before, after: operators on either side; `after` is -1 at the end of a step.
    """

    start: np.ndarray
    end: np.ndarray
    length: np.ndarray
    before: np.ndarray
    after: np.ndarray

    def take(self, rows: np.ndarray) -> Gaps:
        """Some of them."""
        return Gaps(self.start[rows], self.end[rows], self.length[rows], self.before[rows], self.after[rows])


def recurring_gaps(facts: Core, *, from_ns: float, times_from: int) -> Gaps:
    """Gaps in which the device waits and no thread dispatches, at places where they typically take at least `from_ns`
    beyond the usual way and come at least `times_from` times per step, or once less and after the step's last operator.

    Left out are those before the first operator of a step, in the backward pass, in optimizers and in the DataLoader: there
    torch has work of its own.
    """
    trace, step = facts.trace, facts.trace.steps.of_event
    events = outer_operators(facts)
    if len(events) == 0:
        return Gaps(events, events, events.astype(np.float64), events, events)
    after = np.append(events[1:], -1)
    ends = (trace.lane[events] != trace.lane[after]) | (step[events] != step[after]) | (after < 0)
    after = np.where(ends, -1, after)
    start = trace.end[events]
    end = np.where(ends, np.maximum(start, trace.steps.end[step[events]]), trace.start[after])
    real = _without_frames(facts, start, end)
    usual = [max(0.0, float(np.quantile(ns[~ends], _USUAL))) if not ends.all() else 0.0 for ns in (end - start, real)]
    gaps = Gaps(np.minimum(start + round(usual[0]), end), end, real - usual[1], events, after)
    least = max(from_ns, (_TIMES_AS_LONG - 1) * usual[1])

    at = np.flatnonzero(~ends)
    place, number = np.unique(combined(trace.name[events[at]], trace.name[after[at]]), return_inverse=True)
    longest = np.zeros(len(place))
    np.maximum.at(longest, number, gaps.length[at])
    often = np.bincount(number, minlength=len(place)) >= max(1, times_from - 1) * facts.steady_count
    chosen = [
        mine
        for one in np.flatnonzero(often & (longest >= least)).tolist()
        if np.quantile(gaps.length[mine := at[number == one]], TYPICAL) >= least
    ]
    # The last round of a loop has no operator behind it.
    names = [trace.name[events[mine[0]]] for mine in chosen]
    rows = np.concatenate((*chosen, np.flatnonzero(ends & np.isin(trace.name[events], names) & (gaps.length >= least))))
    loading = loader_rows(facts)
    busy = merge(dispatching(facts), union(trace.start[loading], trace.end[loading]))
    waits = covered(facts.classes.sets["host"], start[rows], end[rows])
    return gaps.take(rows[(covered(busy, start[rows], end[rows]) == 0) & (2 * waits >= end[rows] - start[rows])])


def _without_frames(facts: Core, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Length of gaps without what recording the Python frames in them costs, as the replay takes it off; ns."""
    frames = np.sort(facts.trace.start[facts.trace.of(Kind.PYTHON)])
    number = np.searchsorted(frames, end) - np.searchsorted(frames, start)
    length = (end - start).astype(np.float64)
    return np.maximum(length - number * COSTS.frame, LEFT_OF_FRAMES * length)
