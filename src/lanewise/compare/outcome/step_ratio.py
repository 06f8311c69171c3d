"""The ratio of the step times of two arms."""

from __future__ import annotations

import math

from lanewise.compare.model import Ratio
from lanewise.compare.outcome.time_ratios import to_ratio
from lanewise.compare.sides.arm import ENOUGH_RUNS, Arm, paired
from lanewise.compare.statistics import estimate

__all__ = ["STEP_WITHIN", "step_ratio"]

STEP_WITHIN = 0.01
"""Step times differ by less than this: no difference."""

# 2.8 for 5 % and 80 % power, 1.253 because medians are compared (measurement protocol, section 5).
_PLAN = 2.8 * 1.253


def step_ratio(a: Arm, b: Arm) -> Ratio:
    """Compare step times: without the profiler where both sides know them, else as recorded.

    A side with few runs says nothing about the spread between processes; what is known about it widens the interval.
    """
    unprofiled = a.unprofiled and b.unprofiled
    left, right = a.step_rounds(unprofiled=unprofiled), b.step_rounds(unprofiled=unprofiled)
    between = math.hypot(a.between, b.between)
    found = estimate(left, right, paired=paired(a, b), between=between)
    several = _runs_needed(found.ratio, math.hypot(a.noise, b.noise) / math.sqrt(2)) if between else 0
    return to_ratio(found, left, right, within=STEP_WITHIN, several=several)


def _runs_needed(ratio: float, noise: float) -> int:
    """Runs per side that show such a ratio, or that there is no difference, despite the spread between processes."""
    if not ratio > 0:
        return ENOUGH_RUNS
    target = max(abs(math.log(ratio)), STEP_WITHIN)
    return max(ENOUGH_RUNS, math.ceil(2 * (_PLAN * noise / target) ** 2))
