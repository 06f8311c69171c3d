from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewise.capture.schedule import Plan, settled_after

# Host times of recorded steps on an H100 (microseconds), as in the experiments: they fall for nine steps.
H100 = [3184, 131, 75, 71, 68, 66, 64, 61, 58, 56, 56, 55, 56, 57, 56, 55, 56, 56, 56, 56]


def ns(us: list[float]) -> list[int]:
    return [int(value * 1000) for value in us]


def test_the_h100_series_settles_where_a_reader_would_say_so() -> None:
    plan = Plan()
    ends = next(n for n in range(1, 21) if plan.recorded_enough(ns(H100[:n])))
    assert plan.recorded_enough(ns(H100[:ends])) == "settled"
    assert settled_after(ns(H100[:ends])) in range(5, 11)
    assert ends <= 20


def test_three_steps_are_too_few_to_say_that_they_settled() -> None:
    assert settled_after(ns([56, 56, 56])) is None
    assert settled_after(ns([56] * 9)) is None
    assert settled_after(ns([56] * 10)) == 0


def test_times_that_never_settle_end_at_the_cap() -> None:
    falling = [1000 * 0.9**n for n in range(100)]
    plan = Plan()
    ends = next(n for n in range(1, 101) if plan.recorded_enough(ns(falling[:n])))
    assert (ends, plan.recorded_enough(ns(falling[:ends]))) == (plan.active_max, "cap")


def test_long_steps_end_by_time_but_never_before_three() -> None:
    plan = Plan(active_seconds=3.0)
    assert plan.recorded_enough(ns([5e6, 5e6])) == ""
    assert plan.recorded_enough(ns([5e6, 5e6, 5e6])) == "time"


def test_unprofiled_steps_are_timed_until_steady_or_long_enough() -> None:
    plan = Plan()
    assert not plan.timed_enough(ns([100] * 4))
    assert plan.timed_enough(ns([1000] * 10))
    # Tiny steps are timed in full: ten of them say nothing yet.
    assert not plan.timed_enough(ns([100] * 10))
    assert plan.timed_enough(ns([100] * 20))
    assert not plan.timed_enough(ns([100, 300] * 5))
    # Nor are they ever steady: a script of thirty steps must still be recorded.
    assert plan.timed_enough(ns([1000, 3000] * 10))
    assert plan.skip + plan.timed_max + plan.warmup + 3 < 30
    assert plan.timed_enough(ns([400_000] * 5))


@given(st.integers(1, 200))
def test_a_known_number_of_steps_always_fits(steps: int) -> None:
    plan = Plan().fitted(steps)
    assert plan.active_min >= 1
    if steps >= 6:
        assert plan.skip + plan.timed_max + plan.warmup + plan.active_min <= steps


@pytest.mark.parametrize("steps", [50, 1000])
def test_a_program_with_enough_steps_keeps_the_plan(steps: int) -> None:
    assert Plan().fitted(steps) == Plan()


def test_a_program_with_just_enough_steps_is_timed_for_fewer() -> None:
    assert Plan().fitted(30) == Plan(timed_max=13)


@given(st.lists(st.integers(1, 500_000_000), min_size=1, max_size=30), st.sampled_from([Plan(), Plan().fitted(30)]))
def test_ranks_of_a_job_are_timed_and_recorded_over_the_same_steps(times: list[int], plan: Plan) -> None:
    """Whatever each of them takes: a rank that is recorded by itself is in its profiler while the others wait for it."""
    together = plan.in_step()
    even = [1_000_000] * len(times)
    assert together.timed_enough(times) == together.timed_enough(even) == (len(times) >= together.timed_max)
    assert (
        bool(together.recorded_enough(times))
        == bool(together.recorded_enough(even))
        == (len(times) >= together.active_max)
    )


def test_in_step_a_known_number_of_steps_still_fits() -> None:
    for steps in range(6, 60):
        plan = Plan().fitted(steps).in_step()
        assert plan.skip + plan.timed_max + plan.warmup + plan.active_max <= steps
