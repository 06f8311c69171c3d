"""How often to watch, from what it has cost; and how far shares of a sample may be off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lanewise.capture.timing.watch_budget import Budget
from lanewise.cli.main import cli
from lanewise.cli.recording.watch_asked import read_options, read_share
from lanewise.tree.slowing.looks.growing_forest import GrowingForest, RawThread
from lanewise.tree.slowing.looks.sampling import Sampling


def run(plan: Budget, steps: int, more: float, switching: float, usual: float = 1e6) -> tuple[list[int], float]:
    """The steps that are watched, and what watching has added to the run, where a watched step takes `more` of one more."""
    watched: list[int] = []
    on: list[int] = []
    off: list[int] = []
    spent = 0.0
    for step in range(steps):
        if plan.watched(step):
            watched.append(step)
            spent += more * usual
            on.append(round(usual * (1 + more)))
        elif plan.compared(step):
            off.append(round(usual))
        if plan.watched(step) and not plan.watched(step + 1):
            spent += switching
        assert plan.quiet_until(step) >= step
        plan.ended(step + 1, on[-400:], off[-400:], switching)
    return watched, spent / (steps * usual)


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize(("more", "switching"), [(0.2, 1e5), (1.0, 5e5), (0.05, 3e6)])
def test_the_budget_is_kept_and_used(share: float, more: float, switching: float) -> None:
    watched, spent = run(Budget(share), 200_000, more, switching)
    assert 0.7 * share < spent <= 1.1 * share
    assert len(watched) > 100


def test_what_seems_to_cost_nothing_is_not_watched_always() -> None:
    watched, _ = run(Budget(0.01), 50_000, 0.0, 0.0)
    assert len(watched) <= 50_000 / 3


def test_steps_that_come_every_so_often_are_seen_as_often_as_they_come() -> None:
    watched, _ = run(Budget(0.05), 200_000, 0.2, 1e5)
    for period in (10, 100):
        share = np.mean(np.array(watched) % period == 0)
        assert share == pytest.approx(1 / period, rel=0.5)


def test_a_few_windows_of_a_busy_machine_do_not_put_the_next_one_off_by_far() -> None:
    plan = Budget(0.01)
    on: list[int] = []
    for step in range(1_500):
        if plan.watched(step):
            on.append(8_000_000 if len(on) < 2 * plan.steps else 1_200_000)
        plan.ended(step + 1, on, [1_000_000] * 48, 1e5)
    # As if nothing had been: 8 steps of 0.2 more and the ends of a window, of 1 % of the run.
    assert plan.every == 170


def test_the_first_step_of_a_window_takes_longer_and_is_paid_for() -> None:
    plan = Budget(0.01)
    on: list[int] = []
    for step in range(3_000):
        if plan.watched(step):
            on.append(1_100_000 if plan.watched(step - 1) else 2_100_000)
        plan.ended(step + 1, on, [1_000_000] * 48, 2e5)
    # 7 steps of 0.1 more, one of 1.1 more and 0.2 for the ends make 2 steps, of 1 % of the run.
    assert plan.every == 200


def test_quiet_steps_need_nothing() -> None:
    plan = Budget(0.01)
    for step in range(2_000):
        for quiet in range(step, min(plan.quiet_until(step), step + 50)):
            assert not plan.watched(quiet)
            assert not plan.watched(quiet + 2)
            assert not plan.compared(quiet)
        plan.ended(step + 1, [1_200_000] * 20, [1_000_000] * 20, 1e5)


def test_a_budget_is_a_share() -> None:
    assert read_share("1%") == read_share("1 %") == read_share("0.01") == 0.01
    assert read_options("budget=2%")["budget"] == 0.02
    for wrong in ("0", "101%", "-1%", "much", "60%"):
        with pytest.raises(ValueError):
            read_share(wrong)
        result = CliRunner().invoke(cli, ["watch", "--budget", wrong, "-c", "pass"])
        assert result.exit_code == 2
        assert "is no share of the run's time" in result.output


def sampled(windows: int, noise: float, seed: int) -> tuple[float, float]:
    """The largest error of a share of `windows` windows against the truth, and what is said it may be."""
    random = np.random.default_rng(seed)
    forest = GrowingForest()
    size = 12
    forest.learn(RawThread(0, np.zeros(size, int), np.ones(size, int), np.arange(size), np.zeros(size, int)))
    mean = np.linspace(1, 4, size)
    sampling = Sampling(forest)
    total = np.zeros(size)
    for _ in range(windows):
        own = mean * np.exp(noise * random.standard_normal(size)) * np.exp(noise * random.standard_normal())
        sampling.add(own)
        total += own
    return float(np.abs(total / total.sum() - mean / mean.sum())[1:].max()), sampling.error()


def test_the_stated_error_holds_and_is_not_much_too_large() -> None:
    found = [sampled(40, 0.3, seed) for seed in range(200)]
    # The widest interval of twelve shares against the largest of twelve errors.
    held = np.mean([error <= stated for error, stated in found])
    assert held >= 0.85
    assert np.median([stated for _, stated in found]) < 3 * np.median([error for error, _ in found])


def test_too_few_windows_say_nothing(tmp_path: Path) -> None:
    assert sampled(5, 0.3, 0)[1] == -1.0
