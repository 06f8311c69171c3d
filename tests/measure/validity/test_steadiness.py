"""Whether steps are comparable."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.validity.steadiness import settled_from, spread_of


def test_few_steps_count_with_their_extremes() -> None:
    assert spread_of(np.array([90, 100, 120])) == pytest.approx(0.3)
    assert spread_of(np.array([100])) == 0
    assert spread_of(np.array([], dtype=np.int64)) == 0


def test_many_steps_leave_an_outlier_out() -> None:
    assert spread_of(np.array([100] * 19 + [500])) == 0
    assert spread_of(np.array([100, 100, 100, 500])) == 4


def test_a_run_has_settled_at_the_first_step_as_fast_as_the_last_half() -> None:
    # Host times of our recording of 20 steps of one matrix product, us.
    duration = np.array(
        [
            3184.2,
            131.1,
            74.8,
            70.8,
            73.6,
            66.9,
            66.8,
            89.9,
            64.0,
            55.8,
            56.6,
            56.0,
            78.1,
            66.5,
            57.2,
            54.5,
            55.7,
            54.9,
            54.3,
            58.8,
        ]
    )
    row, level = settled_from(duration)
    assert row == 9
    assert level == pytest.approx(56.3)


def test_few_steps_do_not_tell() -> None:
    assert settled_from(np.array([300, 100, 100])) == (-1, -1.0)
