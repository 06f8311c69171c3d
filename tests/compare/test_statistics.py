"""The statistics against SciPy, and the verdict words at their boundaries."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.compare.statistics import (
    Estimate,
    autocorrelation_length,
    bootstrap,
    estimate,
    holm,
    judge,
    mann_whitney,
    rounds_needed,
)

scipy_stats = pytest.importorskip("scipy.stats")


def _normal(seed: int, n: int, level: float = 100.0, noise: float = 0.03) -> np.ndarray:
    return np.random.default_rng(seed).normal(level, level * noise, n)


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=20, unique=True), st.data())
@settings(max_examples=60, deadline=None)
def test_exact_p_agrees_with_scipy_without_ties(values: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    a, b = np.array(values[:cut], float), np.array(values[cut:], float)
    expected = scipy_stats.mannwhitneyu(a, b, alternative="two-sided", method="exact").pvalue
    assert mann_whitney(a, b) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=9), st.data())
@settings(max_examples=25, deadline=None)
def test_exact_p_with_ties_agrees_with_all_permutations(values: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(2, len(values) - 2))
    a, b = np.array(values[:cut], float), np.array(values[cut:], float)

    def distance(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        ranks = scipy_stats.rankdata(np.concatenate((x, y), axis=axis), axis=axis)
        return np.abs(ranks[..., : x.shape[axis]].sum(axis=axis) - x.shape[axis] * (len(values) + 1) / 2)

    expected = scipy_stats.permutation_test(
        (a, b), distance, permutation_type="independent", alternative="greater", n_resamples=np.inf, vectorized=True
    ).pvalue
    assert mann_whitney(a, b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_large_samples_agree_with_scipy(ties: bool) -> None:
    a, b = _normal(1, 60), _normal(2, 45, 101.0)
    if ties:
        a, b = np.round(a), np.round(b)
    expected = scipy_stats.mannwhitneyu(a, b, alternative="two-sided", method="asymptotic").pvalue
    assert mann_whitney(a, b) == pytest.approx(expected, rel=1e-9)


def test_three_rounds_a_side_can_never_reach_five_percent() -> None:
    assert mann_whitney(np.array([1.0, 2, 3]), np.array([100.0, 200, 300])) == pytest.approx(0.1)
    assert mann_whitney(np.array([1.0, 2, 3, 4]), np.array([100.0, 200, 300, 400])) < 0.05


def test_holm_agrees_with_the_definition() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_interval_agrees_with_scipy_bca_on_rounds_of_one() -> None:
    a, b = _normal(3, 40), _normal(4, 40, 90.0)
    ours = estimate([np.array([x]) for x in a], [np.array([x]) for x in b])

    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(x, axis=axis) / np.median(y, axis=axis)

    theirs = scipy_stats.bootstrap((a, b), ratio, n_resamples=10_000, method="BCa", rng=1).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)


def test_pairing_cancels_drift_that_both_arms_share() -> None:
    drift = np.random.default_rng(5).normal(0, 0.2, 12)
    a = [np.full(5, 100.0) * np.exp(d) * np.random.default_rng(i).normal(1, 0.002, 5) for i, d in enumerate(drift)]
    b = [r * 0.95 for r in a]
    together, apart = estimate(a, b, paired=True), estimate(a, b)
    assert together.high - together.low < (apart.high - apart.low) / 3
    assert together.low > 1


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(120):
        draw = np.random.default_rng(seed)
        a = [draw.normal(100, 3) * draw.normal(1, 0.01, 5) for _ in range(12)]
        b = [draw.normal(100, 3) * draw.normal(1, 0.01, 5) for _ in range(12)]
        found = estimate(a, b, resamples=600)
        covered += found.low <= 1 <= found.high
    assert 0.88 * 120 <= covered <= 120


def test_blocks_widen_the_interval_of_a_series_that_drifts() -> None:
    draw = np.random.default_rng(6)
    walk = 100 + np.cumsum(draw.normal(0, 0.5, 80))
    shuffled = draw.permutation(walk)
    assert autocorrelation_length(walk) == 10
    assert autocorrelation_length(draw.normal(0, 1, 200)) <= 2
    level = [np.full(80, 100.0)]
    assert bootstrap([walk], level).std() > 1.5 * bootstrap([shuffled], level).std()


@pytest.mark.parametrize(
    ("low", "high", "p", "word"),
    [
        (1.001, 1.2, 0.04, "faster"),
        (1.001, 1.2, 0.06, "not enough samples"),
        (0.8, 0.999, 0.04, "slower"),
        (0.995, 1.005, 0.5, "no difference"),
        (0.98, 1.02, 0.5, "no difference"),
        (0.979, 1.005, 0.5, "not enough samples"),
        (math.nan, math.nan, 0.01, "not enough samples"),
    ],
)
def test_verdict_words(low: float, high: float, p: float, word: str) -> None:
    assert judge(Estimate((low + high) / 2, low, high, 0.01, p), within=0.02) == word


def test_a_small_certain_difference_is_a_difference_even_inside_the_margin() -> None:
    assert judge(Estimate(1.01, 1.005, 1.015, 0.01, 0.001), within=0.02) == "faster"


def test_rounds_needed_follow_the_square_of_the_noise() -> None:
    assert rounds_needed(Estimate(1.05, 0.9, 1.2, 0.10, 0.4), 10, within=0.01) == math.ceil(
        10 * (0.10 / math.log(1.05)) ** 2
    )
    assert rounds_needed(Estimate(1.5, 1.4, 1.6, 0.01, 0.4), 2, within=0.01) == 4
    assert rounds_needed(Estimate(1.0, math.nan, math.nan, math.nan, 1.0), 2, within=0.01) == 0


def test_what_the_samples_cannot_show_widens_the_interval() -> None:
    a, b = [_normal(7, 30)], [_normal(8, 30, 95.0)]
    plain, wide = estimate(a, b), estimate(a, b, between=0.2)
    assert wide.low < plain.low
    assert wide.high > plain.high
    assert math.log(wide.high / wide.ratio) > 1.96 * 0.2


def test_no_samples_no_interval() -> None:
    assert math.isnan(estimate([np.array([5.0])], [np.array([4.0])]).low)
    assert math.isnan(estimate([np.empty(0)], [np.array([4.0])]).ratio)


def test_fifty_samples_take_less_than_a_fifth_of_a_second() -> None:
    a, b = [np.array([x]) for x in _normal(9, 50)], [np.array([x]) for x in _normal(10, 50)]
    started = time.process_time()
    estimate(a, b)
    assert time.process_time() - started < 0.6


def test_one_value_a_side_decides_beyond_twice_what_processes_differ_by() -> None:
    single = [np.array([200.0])]
    for other, verdict in ((100.0, "faster"), (140.0, "not enough samples"), (400.0, "slower")):
        found = estimate(single, [np.array([other])], between=0.15)
        assert judge(found, within=0.01) == verdict, other
        assert found.low == pytest.approx(200 / other * math.exp(-1.96 * 0.3))
    # Without anything known about the spread nothing can be said.
    assert judge(estimate(single, [np.array([10.0])]), within=0.01) == "not enough samples"
