"""How sure the differences in time of many ops are, all at once.

One recording per side says nothing about how much runs differ. For the kernels of a card two things stand in: the spread
of all kernels that are the same on both sides, and the spread of single steps. Operators of a host have no such guide:
their times are compared from four runs per side on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from lanewise.compare.model import Ratio
from lanewise.compare.sides.arm import ENOUGH_RUNS, Arm
from lanewise.compare.statistics import Estimate, estimate, holm, judge, log_spread, rounds_needed

__all__ = ["KERNEL_WITHIN", "Timed", "middle", "time_ratios", "to_ratio"]

KERNEL_WITHIN = 0.02
"""A kernel's time differs by less than this: no difference."""

# With this many kernels that are the same on both sides, their spread shows what a run cannot show about itself.
_EMPIRICAL_FROM = 6
_RESAMPLES = 2_000
_MAX_TESTS = 200
# The clock that stamps kernels moves in steps of this size on the H100 and H200: a shift between its steps and a program's
# is seen in every launch of a short kernel, so that no number of samples takes it away.
_TICK_NS = 32

# Below this share of the work a difference is not worth a test: each test makes the others weaker.
_WORTH_A_TEST = {True: 0.002, False: 0.01}


class Timed(NamedTuple):
    """Samples of the same work on both sides, per run one array of ns; empty where a side does not do it.

    `same`: whether it is certainly the same kernel, launched in the same way.
    """

    a: list[np.ndarray]
    b: list[np.ndarray]
    same: bool


def time_ratios(a: Arm, b: Arm, timed: Sequence[Timed], *, pair: bool) -> tuple[list[Ratio | None], float | None]:
    """Ratio and verdict of each; None where a side is missing.

    Returns:
        The ratios, and the ratio that all kernels share (the card's doing, not the program's), None if unknown. p values
        are adjusted for all that were tested.
    """
    device = a.typical.work.device and b.typical.work.device
    runs = min(len(a.runs), len(b.runs))
    middles = [(middle(item.a), middle(item.b)) for item in timed]
    common, spread = _common(timed, middles) if device else (None, None)
    noise = math.hypot(a.device_between, b.device_between)
    # Kernels of one card vary less between processes than a host does: their own spread is the better guide.
    noise = noise if spread is None else min(noise, spread)
    chosen = _worth_a_test(middles, device)
    found: dict[int, Estimate] = {}
    for i in chosen:
        steps = math.hypot(a.unseen(log_spread(timed[i].a)), b.unseen(log_spread(timed[i].b)))
        found[i] = estimate(timed[i].a, timed[i].b, paired=pair, between=max(noise, steps), resamples=_RESAMPLES)
    tested = [i for i in chosen if found[i].p < 1 and (device or runs >= ENOUGH_RUNS)]
    adjusted = dict(zip(tested, holm([found[i].p for i in tested]), strict=True))
    ratios: list[Ratio | None] = []
    for i, (before, after) in enumerate(middles):
        if not (before > 0 and after > 0):
            ratios.append(None)
            continue
        value = found.get(i, Estimate(before / after, math.nan, math.nan, math.nan, 1.0))
        value = value._replace(p=adjusted.get(i, 1.0))
        several = 0 if device or runs >= ENOUGH_RUNS else ENOUGH_RUNS
        ratio = to_ratio(value, timed[i].a, timed[i].b, within=KERNEL_WITHIN, tests=len(tested), several=several)
        if device and abs(before - after) <= 2 * _TICK_NS and ratio.verdict in {"faster", "slower"}:
            ratio = msgspec.structs.replace(ratio, verdict="not enough samples")
        ratios.append(_beyond_common(ratio, value, common))
    return ratios, common


def middle(rounds: Sequence[np.ndarray]) -> float:
    """Median of all samples, ns; 0 without any."""
    return float(np.median(np.concatenate(list(rounds)))) if rounds and sum(map(len, rounds)) else 0.0


def _worth_a_test(middles: Sequence[tuple[float, float]], device: bool) -> list[int]:
    sized = [i for i, (before, after) in enumerate(middles) if before > 0 and after > 0]
    worth = _WORTH_A_TEST[device] * max(sum(x for x, _ in middles), sum(y for _, y in middles))
    sized = [i for i in sized if max(middles[i]) >= worth]
    return sorted(sized, key=lambda i: -max(middles[i]))[:_MAX_TESTS]


def _common(timed: Sequence[Timed], middles: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Ratio that kernels that are the same on both sides share, and their spread around it (standard deviation of the
    log); None with too few of them. Each counts once: what they share is the card's doing, not the program's."""
    logs = [math.log(x / y) for item, (x, y) in zip(timed, middles, strict=True) if item.same and x > 0 and y > 0]
    if len(logs) < _EMPIRICAL_FROM:
        return None, None
    center = float(np.median(logs))
    return math.exp(center), 1.4826 * float(np.median(np.abs(np.array(logs) - center)))


def _beyond_common(ratio: Ratio, value: Estimate, common: float | None) -> Ratio:
    """A kernel differs only if it also differs from what all of them share."""
    if common is None or ratio.verdict not in {"faster", "slower"}:
        return ratio
    apart = value._replace(ratio=value.ratio / common, low=value.low / common, high=value.high / common)
    if judge(apart, within=KERNEL_WITHIN) == ratio.verdict:
        return ratio
    return msgspec.structs.replace(ratio, verdict="not enough samples")


def to_ratio(
    found: Estimate,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    *,
    within: float,
    tests: int = 1,
    several: int = 0,
) -> Ratio:
    """An estimate as data, with its verdict.

    Args:
        a, b: the rounds it is of.
        within: share up to which a difference is none.
        tests: number of tests that its p value is adjusted for.
        several: runs per side that a single run per side would have to become, 0 if that is not what is missing.
    """
    # A round with one sample stands for a run, whose steps are not known.
    each = min(len(a), len(b)) > 1 or all(len(steps) == 1 for steps in (*a, *b))
    unit = "runs" if each else "steps"
    counts = (len(a), len(b)) if each else (sum(map(len, a)), sum(map(len, b)))
    verdict = judge(found, within=within)
    further = 0
    if verdict == "not enough samples":
        further = several or max(0, rounds_needed(found, max(1, min(counts)), within=within) - min(counts))
    return Ratio(
        verdict=verdict,
        ratio=_number(found.ratio),
        low=_number(found.low),
        high=_number(found.high),
        p=found.p if found.p < 1 else None,
        mde=_number(found.mde),
        unit=unit,
        a_count=counts[0],
        b_count=counts[1],
        further=further,
        further_unit="runs" if several else unit,
        tests=tests,
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
