"""Whether steps are comparable: how much they differ in time and in what they run, and from when on they are steady."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Steadiness", "measure_steadiness", "settled_from", "spread_of"]

# From this many steps on the extremes are left out: one outlier in many steps is normal.
_QUANTILES_FROM = 5

# Fewer steps than this do not show when a run settles: the last half of them would be two or three.
_SETTLES_FROM = 8


@dataclass(frozen=True, eq=False)
class Steadiness:
    """How comparable the steady steps are.

    Attributes:
        spread: (max - min) of their periods over the median; from 5 steps on (p90 - p10) over the median.
        operators: operator rows of each step, all steps, shape (steps,).
        difference: of each step's operators from those of the typical steady step, as a share of the latter; 0 where it
            runs the same operators equally often, shape (steps,).
        settled: row of the first step as fast on the host as the last half, or -1 if that cannot be told.
        settled_ns: host duration of the last half (median), or -1.
    """

    spread: float
    operators: np.ndarray
    difference: np.ndarray
    settled: int
    settled_ns: float


def measure_steadiness(facts: Core) -> Steadiness:
    """Measure how comparable the steps are."""
    steady = facts.steps.steady
    period = facts.steps.table["period"][steady]
    operators, difference = _operators(facts)
    host = facts.steps.table["host_duration"]
    settled, level = settled_from(host)
    return Steadiness(spread_of(period), operators, difference, settled, level)


def spread_of(period: np.ndarray) -> float:
    """(max - min) / median; from 5 values on (p90 - p10) / median. 0 for fewer than two values."""
    if len(period) < 2:
        return 0.0
    low, high = (10, 90) if len(period) >= _QUANTILES_FROM else (0, 100)
    middle = float(np.median(period))
    return float(np.percentile(period, high) - np.percentile(period, low)) / middle if middle > 0 else 0.0


def settled_from(duration: np.ndarray, within: float = 0.05) -> tuple[int, float]:
    """Row of the first step that is no more than 5 % above the median of the last half, and that median; (-1, -1) for
    fewer than 8 steps."""
    if len(duration) < _SETTLES_FROM:
        return -1, -1.0
    level = float(np.median(duration[len(duration) // 2 :]))
    return int(np.flatnonzero(duration <= level * (1 + within))[0]), level


def _operators(facts: Core) -> tuple[np.ndarray, np.ndarray]:
    trace, steps = facts.trace, facts.trace.steps
    events = trace.of(Kind.OPERATOR)
    step = steps.of_event[events].astype(np.int64)
    events, step = events[step >= 0], step[step >= 0]
    count = np.bincount(step, minlength=len(steps))
    difference = np.zeros(len(steps))
    steady = np.flatnonzero(facts.steps.steady)
    if len(steady) == 0 or count[steady].max(initial=0) == 0:
        return count, difference
    # The typical step is a real one, not a mean of unequal ones: the steady step with the median number of operators.
    typical = int(steady[np.argsort(count[steady], kind="stable")[(len(steady) - 1) // 2]])
    names = len(trace.names)
    keys, number = np.unique(step * names + trace.name[events], return_counts=True)
    row, name = keys // names, keys % names
    expected = np.zeros(names, dtype=np.int64)
    expected[name[row == typical]] = number[row == typical]
    # Sum of |found - expected| over all names: start from "nothing found" and correct the names that were.
    corrected = np.bincount(row, np.abs(number - expected[name]) - expected[name], minlength=len(steps))
    total = int(expected.sum())
    return count, (corrected + total) / max(1, total)
