"""How sure a difference in time is. The definitions are those of the measurement protocol:

estimand       R = median(A) / median(B), above 1 where B is faster
interval       95 % percentile bootstrap that resamples whole rounds (and samples within them); a single series of steps
               is resampled in moving blocks, because neighbouring steps are alike
test           two-sided Mann-Whitney on the medians of the rounds, exact (ties included) up to 20 a side
effect         MDE = 2.8 * SE(log R): the smallest ratio found with 80 % power at the 5 % level
verdict words  faster, slower, no difference, not enough samples, invalid: there are no others
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

__all__ = [
    "RESAMPLES",
    "Estimate",
    "Verdict",
    "autocorrelation_length",
    "bootstrap",
    "estimate",
    "holm",
    "judge",
    "log_spread",
    "mann_whitney",
    "rounds_needed",
]

Verdict = Literal["faster", "slower", "no difference", "not enough samples", "invalid"]

RESAMPLES = 10_000
_SEED = 20_260_101
_EXACT_TO = 20
_BLOCK = 10
# Two-sided 5 % and 80 % power: 1.96 + 0.84. A median is 1.253 times as noisy as a mean.
_POWER, _MEDIAN_NOISE = 2.8, 1.253
_CELLS = 2_000_000
# A spread that is only expected, and that no sample could contradict, is taken twice.
_UNSEEN = 2.0
# Between the 20 % and the 80 % quantile of a normal distribution, in standard deviations.
_QUANTILE_WIDTH = 1.683


class Estimate(NamedTuple):
    """A ratio with what is known about it.

    Attributes:
        ratio: median(A) / median(B). low, high: its 95 % interval; NaN where there is none.
        mde: minimum detectable effect as a share, NaN where there is no interval.
        p: of the test, adjusted if several were made; 1 where it cannot be made.
    """

    ratio: float
    low: float
    high: float
    mde: float
    p: float


def estimate(
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    *,
    paired: bool = False,
    between: float = 0.0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Estimate the ratio of the medians of two arms.

    Args:
        a, b: the rounds of each arm, each an array of samples (times); one round is a single series of steps.
        paired: whether round i of A and of B were taken together, so that drift that both share cancels.
        between: standard deviation of log R that the rounds cannot show, such as that between processes.
        resamples: of the bootstrap.
    """
    ratio = _ratio(a, b)
    draws = bootstrap(a, b, paired=paired, resamples=resamples)
    if not ratio > 0 or (len(draws) == 0 and not between > 0):
        return Estimate(ratio, math.nan, math.nan, math.nan, 1.0)
    if len(draws) == 0:
        return _by_what_is_known(ratio, _UNSEEN * between)
    low, high = np.quantile(draws, (0.025, 0.975))
    middle = math.log(ratio)
    # What the samples cannot show widens both halves of the interval.
    down, up = (math.hypot(middle - low, 1.96 * between), math.hypot(high - middle, 1.96 * between))
    mde = _POWER * math.hypot(float(draws.std()), between)
    return Estimate(ratio, math.exp(middle - down), math.exp(middle + up), mde, mann_whitney(_units(a), _units(b)))


def _by_what_is_known(ratio: float, between: float) -> Estimate:
    """Of a value that stands for a stretch of steps on either side: it has no spread of its own, only one to expect."""
    reach = 1.96 * between
    p = math.erfc(abs(math.log(ratio)) / between / math.sqrt(2))
    return Estimate(ratio, ratio * math.exp(-reach), ratio * math.exp(reach), _POWER * between, p)


def judge(found: Estimate, *, within: float) -> Verdict:
    """The verdict word; `within` is the share up to which a difference is none."""
    if not (found.low > 0 and found.high > 0):
        return "not enough samples"
    if found.low > 1 and found.p < 0.05:
        return "faster"
    if found.high < 1 and found.p < 0.05:
        return "slower"
    if found.low >= 1 - within and found.high <= 1 + within:
        return "no difference"
    return "not enough samples"


def rounds_needed(found: Estimate, have: int, *, within: float) -> int:
    """Rounds per arm that would settle it, by the MDE; 0 if it cannot be told. Fewer than 4 never reach p < 0.05."""
    if not found.mde > 0:
        return 0
    effect = abs(math.log(found.ratio))
    target = effect if effect > within else within
    return max(4, math.ceil(have * (found.mde / target) ** 2))


def bootstrap(
    a: Sequence[np.ndarray], b: Sequence[np.ndarray], *, paired: bool = False, resamples: int = RESAMPLES
) -> np.ndarray:
    """Resampled values of log R, shape (resamples,); empty where an arm has fewer than 2 samples."""
    if sum(map(len, a)) < 2 or sum(map(len, b)) < 2 or any(len(r) == 0 for r in (*a, *b)):
        return np.empty(0)
    draw = np.random.default_rng(_SEED)
    cells = max(sum(map(len, a)), sum(map(len, b)), 1)
    parts: list[np.ndarray] = []
    for begin in range(0, resamples, max(1, _CELLS // cells)):
        count = min(max(1, _CELLS // cells), resamples - begin)
        rounds = draw.random((count, len(a))) if paired and len(a) == len(b) else None
        top = _medians(a, count, draw, rounds)
        parts.append(np.log(top / _medians(b, count, draw, rounds)))
    return np.concatenate(parts)


def mann_whitney(a: np.ndarray, b: np.ndarray) -> float:
    """Two-sided p value: exact with ties up to 20 a side, the tie-corrected normal approximation above."""
    n, m = len(a), len(b)
    if n == 0 or m == 0:
        return 1.0
    values, rank_of, count = np.unique(np.concatenate((a, b)), return_inverse=True, return_counts=True)
    # Twice the mid-ranks are whole numbers: ties stay exact.
    twice = (2 * np.cumsum(count) - count + 1)[rank_of]
    total, mean = int(twice[:n].sum()), n * (n + m + 1)
    if len(values) == 1:
        return 1.0
    if max(n, m) <= _EXACT_TO:
        return _exact(twice.astype(np.int64), n, total, mean)
    variance = n * m / 12 * ((n + m + 1) - float((count**3 - count).sum()) / ((n + m) * (n + m - 1)))
    distance = max(0.0, abs(total - mean) / 2 - 0.5)
    return math.erfc(distance / math.sqrt(variance) / math.sqrt(2)) if variance > 0 else 1.0


def holm(p: Sequence[float]) -> list[float]:
    """Holm-adjusted p values, in the order given."""
    adjusted, running = [1.0] * len(p), 0.0
    for rank, at in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        running = max(running, min(1.0, p[at] * (len(p) - rank)))
        adjusted[at] = running
    return adjusted


def autocorrelation_length(series: np.ndarray) -> int:
    """Steps until neighbours are no longer alike (correlation within chance), 1 to 10."""
    n = len(series)
    centred = series - series.mean() if n else series
    power = float((centred * centred).sum())
    if n < 8 or power == 0:
        return 1
    for lag in range(1, min(_BLOCK, n // 2)):
        if float((centred[:-lag] * centred[lag:]).sum()) / power < 1.96 / math.sqrt(n):
            return lag
    return min(_BLOCK, n // 2)


def log_spread(rounds: Sequence[np.ndarray]) -> float:
    """Standard deviation of the log of single samples, from their 20 % and 80 % quantiles: outliers do not widen it."""
    samples = np.concatenate(list(rounds)) if rounds else np.empty(0)
    if len(samples) < 2:
        return 0.0
    low, high = np.quantile(samples, (0.2, 0.8))
    return math.log(high / low) / _QUANTILE_WIDTH if low > 0 else 0.0


def _ratio(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    if not (sum(map(len, a)) and sum(map(len, b))):
        return math.nan
    top, bottom = (float(np.median(np.concatenate(list(arm)))) for arm in (a, b))
    return top / bottom if bottom > 0 else math.nan


def _units(rounds: Sequence[np.ndarray]) -> np.ndarray:
    """The independent values of an arm: medians of its rounds; of a single series the medians of its blocks."""
    if len(rounds) > 1:
        return np.array([np.median(samples) for samples in rounds])
    series = np.asarray(rounds[0], dtype=np.float64)
    length = autocorrelation_length(series)
    whole = len(series) // length * length
    return np.median(series[:whole].reshape(-1, length), axis=1) if whole else series


def _medians(
    rounds: Sequence[np.ndarray], count: int, draw: np.random.Generator, chosen: np.ndarray | None
) -> np.ndarray:
    """Medians of `count` resamples of one arm; `chosen`: uniform numbers that pick the rounds, the same for a pair."""
    if len(rounds) == 1:
        return np.median(rounds[0][_block_rows(len(rounds[0]), count, draw)], axis=1)
    longest = max(map(len, rounds))
    table = np.stack([np.resize(samples, longest) for samples in rounds]).astype(np.float64)
    length = np.array([len(samples) for samples in rounds])
    pick = ((draw.random((count, len(rounds))) if chosen is None else chosen) * len(rounds)).astype(np.int64)
    inner = (draw.random((count, len(rounds), longest)) * length[pick][:, :, None]).astype(np.int64)
    return np.median(table[pick[:, :, None], inner].reshape(count, -1), axis=1)


def _block_rows(n: int, count: int, draw: np.random.Generator) -> np.ndarray:
    """Rows of `count` moving-block resamples of a series of n."""
    block = max(1, min(_BLOCK, n // 4))
    blocks = math.ceil(n / block)
    start = draw.integers(0, n - block + 1, size=(count, blocks))
    return (start[:, :, None] + np.arange(block)).reshape(count, -1)[:, :n]


def _exact(twice: np.ndarray, n: int, total: int, mean: int) -> float:
    """Share of all ways to choose n of the ranks whose sum is at least as far from the mean; ranks are doubled."""
    low = int(twice.min())
    shifted = twice - low
    top = int(shifted.sum())
    ways = np.zeros((n + 1, top + 1))
    ways[0, 0] = 1.0
    for rank in shifted.tolist():
        ways[1:, rank:] += ways[:-1, : top + 1 - rank].copy()
    sums = np.arange(top + 1) + n * low
    extreme = np.abs(sums - mean) >= abs(total - mean)
    return min(1.0, float(ways[n][extreme].sum() / ways[n].sum()))
