"""Recurring gaps: between the same two operators the program does something else, several times in each step.

Each of them may be far too short to be worth a word. Python that runs once per layer, per sample or per parameter adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.launch.bubbles import loader_rows
from lanewise.measure.launch.host_lanes import dispatching
from lanewise.measure.launch.sequences import outer_operators
from lanewise.replay.undistort import COSTS, LEFT_OF_FRAMES
from lanewise.trace.intervals import covered, merge, union
from lanewise.trace.schema import Kind

__all__ = ["Gaps", "recurring_gaps"]

# Of the gaps between the same operators, so many are at least as long as is said of them, as in `replay.undistort`.
_TYPICAL = 0.25
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
    """Gaps in which the device waits and no thread dispatches, at places where they typically take at least `from_ns` beyond
    the usual way and come at least `times_from` times per step, or once less and after the step's last operator.

    Left out are those before the first operator of a step, in the backward pass, in optimizers and in the DataLoader: there
    torch has work of its own.
    """
    trace, step = facts.trace, facts.trace.steps.of_event
    events = outer_operators(facts)
    last = np.append(trace.lane[events][1:] != trace.lane[events][:-1], True)
    last[:-1] |= step[events][1:] != step[events][:-1]
    after = np.where(last, -1, np.append(events[1:], -1))
    start = trace.end[events]
    end = np.where(last, np.maximum(start, trace.steps.end[step[events]]), trace.start[np.maximum(after, 0)])
    real = _without_frames(facts, start, end)
    usual = [max(0.0, float(np.quantile(ns[~last], _USUAL))) if not last.all() else 0.0 for ns in (end - start, real)]
    gaps = Gaps(np.minimum(start + round(usual[0]), end), end, real - usual[1], events, after)
    least = max(from_ns, (_TIMES_AS_LONG - 1) * usual[1])

    place = trace.name[events].astype(np.int64) * (len(trace.names) + 1) + np.where(last, 0, trace.name[after] + 1)
    loading = loader_rows(facts)
    busy = merge(dispatching(facts), union(trace.start[loading], trace.end[loading]))
    waits = facts.classes.sets["host"]
    chosen, leading = [np.empty(0, dtype=np.int64)], list[int]()
    often = (times_from - 1) * facts.steady_count
    for one in np.unique(place[(gaps.length >= least) & ~last]).tolist():
        mine = np.flatnonzero(place == one)
        if len(mine) >= often and np.quantile(gaps.length[mine], _TYPICAL) >= least:
            chosen.append(mine)
            leading.append(one // (len(trace.names) + 1))
    ends = last & np.isin(trace.name[events], leading) & (gaps.length >= least)
    rows = np.concatenate((*chosen, np.flatnonzero(ends)))
    low, high = start[rows], end[rows]
    alone = (covered(busy, low, high) == 0) & (2 * covered(waits, low, high) >= high - low)
    return gaps.take(rows[alone])


def _without_frames(facts: Core, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Length of gaps without what recording the Python frames in them costs, as the replay takes it off; ns."""
    frames = np.sort(facts.trace.start[facts.trace.of(Kind.PYTHON)])
    number = np.searchsorted(frames, end) - np.searchsorted(frames, start)
    length = (end - start).astype(np.float64)
    return np.maximum(length - number * COSTS.frame, LEFT_OF_FRAMES * length)
