"""Where fixed costs and work meet, told from steps at several sizes."""

from __future__ import annotations

import pytest

from lanewise.report.swept import Crossover
from lanewise.sweep.crossover import crossover_of_steps, crossover_with_device

SIZES = [1.0, 4.0, 16.0, 64.0, 256.0]


def steps(fixed: float, each: float) -> list[float]:
    return [fixed + each * size for size in SIZES]


@pytest.mark.parametrize(("fixed", "each"), [(400.0, 10.0), (50.0, 3.0), (1000.0, 5.0)])
def test_fixed_costs_and_work_meet_where_they_are_equal(fixed: float, each: float) -> None:
    found = crossover_of_steps(SIZES, steps(fixed, each))
    assert found is not None
    assert found.where == "within"
    assert found.at == pytest.approx(fixed / each, rel=0.03)
    assert found.fixed_us == pytest.approx(fixed, rel=0.02)


def test_noise_of_a_few_percent_moves_it_by_as_little() -> None:
    noisy = [step * factor for step, factor in zip(steps(400, 10), (1.03, 0.98, 1.02, 0.97, 1.01), strict=True)]
    found = crossover_of_steps(SIZES, noisy)
    assert found is not None
    assert found.at == pytest.approx(40, rel=0.15)


def test_a_first_value_that_was_disturbed_is_not_what_is_fixed() -> None:
    found = crossover_of_steps(SIZES, [700.0, *steps(400, 10)[1:]])
    assert found is not None
    assert found.at == pytest.approx(40, rel=0.2)


@pytest.mark.parametrize(
    ("fixed", "each", "where", "at"),
    [(400.0, 0.01, "none", None), (5.0, 10.0, "below", 0.5), (4000.0, 10.0, "beyond", 400.0)],
)
def test_outside_of_the_values_it_is_said_where(fixed: float, each: float, where: str, at: float | None) -> None:
    found = crossover_of_steps(SIZES, steps(fixed, each))
    assert found is not None
    assert found.where == where
    assert found.at == (None if at is None else pytest.approx(at, rel=0.03))


def test_one_value_tells_nothing() -> None:
    assert crossover_of_steps([1.0], [3.0]) is None
    assert crossover_with_device([1.0], [3.0], [1.0]) is None


def test_a_device_crosses_where_it_needs_as_long_as_the_host() -> None:
    host = [500.0, 510.0, 505.0, 500.0, 500.0]
    assert crossover_with_device(SIZES, host, [5 * size for size in SIZES]) == Crossover("within", 500.0, 100.0)
    below = crossover_with_device(SIZES, host, [5000.0 + size for size in SIZES])
    beyond = crossover_with_device(SIZES, host, [0.5 * size for size in SIZES])
    assert below is not None
    assert below.where == "below"
    assert beyond is not None
    assert (beyond.where, beyond.at) == ("beyond", pytest.approx(1000, rel=0.01))
    assert crossover_with_device(SIZES, host, [0.0] * 5) is None
