"""What becomes slower is named within a hundred steps; healthy programs of several kinds of noise say nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lanewise.tree.slowing import lookout
from lanewise.tree.slowing.changes.machine_speed import MachineSpeed
from lanewise.tree.slowing.changes.more_calls import MoreCalls
from lanewise.tree.slowing.changes.sequential import CERTAIN, LEAST, REFERENCE, Evidence, Usual, usual_of
from lanewise.tree.slowing.lookout import Lookout
from lanewise.tree.slowing.looks.processor_wait import ProcessorWait
from lanewise.tree.watching.collected import MODULE_SEPARATOR, CollectedKind
from tests.tree.slowing.simulated import NOISES, Program, followed

BEGIN = 800
PLACE = 7
NAMED = ("layers.1", "aten::op2")


def shares(random: np.random.Generator, places: int = 50) -> np.ndarray:
    """ns of each place in a step of 10 ms; the one that is slowed down takes 5 % of it."""
    share = random.dirichlet(np.full(places, 2.0)) * 1e7
    share[PLACE] = 5e5
    return share


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step here takes no time: looking would seem to take all of it, and so would whoever else has the processor."""
    monkeypatch.setattr(lookout, "_COST", 1e9)
    monkeypatch.setattr(ProcessorWait, "ns", lambda _: 0)


@pytest.mark.parametrize("noise", ["quiet", "noisy", "interrupted", "periodic", "wandering"])
def test_ten_percent_of_one_place_are_reported_within_a_hundred_steps(noise: str) -> None:
    random = np.random.default_rng(3)
    times = NOISES[noise](random, BEGIN + 110, 50)
    times[BEGIN:, PLACE] *= 1.1
    (found,) = followed(Program(), times * shares(random))
    assert found.path[-2:] == NAMED
    assert found.path[0] == "train"
    assert (found.file, found.line) == ("train.py", 3)
    assert BEGIN < found.at <= BEGIN + 100
    assert abs(found.since - BEGIN) <= 24
    assert found.after / found.before == pytest.approx(1.1, abs=0.04)


@pytest.mark.parametrize("noise", list(NOISES))
def test_a_healthy_program_says_nothing(noise: str) -> None:
    random = np.random.default_rng(4)
    # 10,000 steps here; benchmarks/slowdowns.py has a hundred times as many.
    times = np.maximum(NOISES[noise](random, 10_000, 50), 0.1)
    assert followed(Program(), times * shares(random)) == []


def test_a_machine_that_becomes_slower_is_no_place() -> None:
    random = np.random.default_rng(5)
    times = NOISES["quiet"](random, BEGIN + 800, 50)
    times[BEGIN:] *= 1.3
    assert followed(Program(), times * shares(random)) == []


def test_a_machine_that_makes_one_place_slower_than_the_others_is_no_place_either() -> None:
    random = np.random.default_rng(8)
    times = NOISES["quiet"](random, BEGIN + 800, 50)
    times[BEGIN:] *= 1.3 + 0.08 * random.standard_normal(50)
    times[BEGIN:, PLACE] *= 1.1
    assert followed(Program(), times * shares(random)) == []


def test_a_place_that_goes_beyond_what_the_machine_does_to_others_is_still_named() -> None:
    random = np.random.default_rng(8)
    times = NOISES["quiet"](random, BEGIN + 110, 50)
    times[BEGIN:] *= 1.3 + 0.02 * random.standard_normal(50)
    times[BEGIN:, PLACE] *= 1.2
    (found,) = followed(Program(), times * shares(random))
    assert found.path[-2:] == NAMED


@pytest.mark.parametrize(("more", "named"), [(1.15, False), (1.3, True)])
def test_what_the_step_does_not_feel_is_not_said(more: float, named: bool) -> None:
    random = np.random.default_rng(10)
    times = NOISES["quiet"](random, BEGIN + 400, 50)
    times[BEGIN:, PLACE] *= more
    share = shares(random)
    share[PLACE] = 0.022 * share.sum()
    found = followed(Program(), times * share)
    assert [one.path[-2:] for one in found] == [NAMED] * named


def test_what_the_step_does_not_feel_keeps_nothing_else_from_being_named() -> None:
    """No new reference is taken for it, which would have the other change in it."""
    random = np.random.default_rng(20)
    times, calls = NOISES["quiet"](random, BEGIN + 700, 50), np.ones((BEGIN + 700, 50), np.int64) * 10
    share = shares(random)
    share[3] = 0.024 * share.sum()
    times[BEGIN:, 3] *= 1.12
    times[BEGIN + 500 :, PLACE] *= 1.1
    calls[BEGIN + 500 :, PLACE] = 11
    (found,) = followed(Program(), times * share, calls)
    assert found.path[-2:] == NAMED
    assert found.at <= BEGIN + 600


def test_what_a_place_waited_for_a_processor_is_not_its_own() -> None:
    random = np.random.default_rng(9)
    times = NOISES["quiet"](random, BEGIN + 400, 50) * shares(random)
    waits = np.zeros_like(times)
    waits[BEGIN:, PLACE] = 0.3 * times[BEGIN:, PLACE]
    assert followed(Program(), times + waits, waits=waits) == []
    (found,) = followed(Program(), times + waits)
    assert found.path[-2:] == NAMED


def test_growth_is_found_where_it_is() -> None:
    random = np.random.default_rng(6)
    times = NOISES["quiet"](random, 3_000, 50)
    times[BEGIN:, PLACE] *= np.linspace(1, 1.4, 3_000 - BEGIN)
    found = followed(Program(), times * shares(random))
    assert {one.path[-2:] for one in found} == {NAMED}
    assert found[0].at < BEGIN + 600


def test_what_is_called_more_often_says_so() -> None:
    random = np.random.default_rng(7)
    times, calls = NOISES["quiet"](random, BEGIN + 200, 50), np.ones((BEGIN + 200, 50), np.int64)
    times[BEGIN:, PLACE] *= 2
    calls[BEGIN:, PLACE] = 2
    (found,) = followed(Program(), times * shares(random), calls)
    assert (found.calls_before, found.calls_after) == (1.0, pytest.approx(2.0, abs=0.3))


@pytest.mark.parametrize("noise", ["moody", "uneven", "contended", "wandering", "noisy"])
def test_a_place_that_calls_more_is_named_on_a_busy_machine_too(noise: str) -> None:
    random = np.random.default_rng(7)
    times, calls = NOISES[noise](random, 1_300, 50), np.ones((1_300, 50), np.int64) * 10
    times[1_100:, PLACE] *= 1.1
    calls[1_100:, PLACE] = 11
    found = followed(Program(), times * shares(random), calls)
    assert [one.path[-2:] for one in found] == [NAMED]
    assert 1_100 < found[0].at <= 1_200


def test_more_calls_that_take_no_longer_are_no_slowdown() -> None:
    random = np.random.default_rng(6)
    times, calls = NOISES["noisy"](random, 1_300, 50), np.ones((1_300, 50), np.int64) * 10
    calls[1_100:, PLACE] = 11
    assert followed(Program(), times * shares(random), calls) == []


def test_more_calls_for_a_few_steps_or_as_in_the_reference_are_no_change() -> None:
    more = MoreCalls(np.array([[10.0, 10.0]] * 79 + [[10.0, 12.0]]))
    for block in range(41):
        assert not more.block(np.array([20.0 if block % 8 else 10.0, 12.4])).any()
    for block in range(8):
        assert more.block(np.array([10.5, 10.0])).tolist() == [block == 7, False]
    more.forget(np.array([True, True]))
    assert not any(more.block(np.array([10.5, 10.0])).any() for _ in range(20))


def test_a_new_operator_is_named_and_not_the_module_around_it() -> None:
    random = np.random.default_rng(8)
    times, share = NOISES["quiet"](random, BEGIN + 300, 50), shares(random)
    times[:BEGIN, PLACE] = 0
    share[PLACE] = 1e6
    (found,) = followed(Program(), times * share)
    assert found.path[-2:] == NAMED
    assert found.before == 0
    assert found.after == pytest.approx(1e6, rel=0.1)


def test_a_reported_place_is_followed_from_its_new_level_on() -> None:
    random = np.random.default_rng(9)
    times = NOISES["quiet"](random, BEGIN + 1_200, 50)
    times[BEGIN:, PLACE] *= 1.2
    times[BEGIN + 600 :, PLACE] *= 1.3
    found = followed(Program(), times * shares(random))
    assert [one.path[-2:] for one in found] == [NAMED, NAMED]
    assert found[1].since >= BEGIN + 500


def test_blocks_in_which_others_have_the_processor_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = itertools.count(0, 10**12)
    monkeypatch.setattr(ProcessorWait, "ns", lambda _: next(waited))
    random = np.random.default_rng(10)
    times = NOISES["quiet"](random, BEGIN + 300, 50)
    times[BEGIN:, PLACE] *= 3
    assert followed(Program(), times * shares(random)) == []


def in_python(program: Program, places: int) -> None:
    """So many more modules, of a function without operators each."""
    for place in range(places):
        at = program.add(1, CollectedKind.MODULE, MODULE_SEPARATOR.join(("Net_0", f"once.{place}", "Once")))
        program.leaves.append(program.add(at, CollectedKind.SCOPE, "work"))


def test_code_that_runs_once_a_step_and_feels_a_busy_machine_more_than_operators_is_no_place() -> None:
    random = np.random.default_rng(16)
    program = Program()
    in_python(program, 16)
    times = NOISES["quiet"](random, BEGIN + 800, 66)
    times[BEGIN:, 50:] *= 1 + np.linspace(0, 0.4, 16)
    share = np.append(shares(random), np.full(16, 6e5))
    assert followed(program, times * share) == []


def test_code_in_python_that_becomes_slower_by_itself_is_named() -> None:
    random = np.random.default_rng(17)
    program = Program()
    in_python(program, 16)
    times = NOISES["quiet"](random, BEGIN + 110, 66)
    times[BEGIN:, 55] *= 1.2
    (found,) = followed(program, times * np.append(shares(random), np.full(16, 6e5)))
    assert "once.5" in found.path
    assert found.at <= BEGIN + 100


def test_a_program_is_compared_with_what_it_is_once_it_has_begun() -> None:
    """A place that is quicker in the first steps says little of how far it is spread later."""
    random = np.random.default_rng(18)
    times = NOISES["noisy"](random, 1_210, 50)
    times[:250, PLACE] *= 0.85
    times[1_100:, PLACE] *= 1.1
    (found,) = followed(Program(), times * shares(random))
    assert found.path[-2:] == NAMED
    assert 1_100 < found.at <= 1_200


def test_a_change_while_the_program_settles_is_not_taken_for_what_is_usual() -> None:
    random = np.random.default_rng(19)
    for begin in range(500, 900, 40):
        times, calls = NOISES["noisy"](random, begin + 200, 50), np.ones((begin + 200, 50), np.int64) * 10
        times[begin:, PLACE] *= 1.1
        calls[begin:, PLACE] = 11
        found = followed(Program(), times * shares(random), calls)
        assert [one.path[-2:] for one in found] == [NAMED], begin


def felt(random: np.random.Generator, steps: int, places: int) -> np.ndarray:
    """How many times as long places take on a machine whose speed changes, where each feels another part of that."""
    exponents = random.uniform(0.4, 1.2, places)
    exponents[PLACE] = 0.4
    speed = 0.3 * np.repeat(random.standard_normal(steps // 40 + 1), 40)[:steps]
    return np.exp(speed[:, None] * exponents) * (1 + 0.03 * random.standard_normal((steps, places)))


def test_a_place_that_feels_little_of_the_machine_is_found_where_the_machine_changes_its_speed() -> None:
    random = np.random.default_rng(14)
    times = felt(random, BEGIN + 200, 50)
    times[BEGIN:, PLACE] *= 1.2
    found = followed(Program(), times * shares(random))
    assert [one.path[-2:] for one in found] == [NAMED]
    assert found[0].at <= BEGIN + 140


def test_what_each_place_feels_of_the_machine_is_no_change_of_it() -> None:
    random = np.random.default_rng(15)
    assert followed(Program(), felt(random, 8_000, 50) * shares(random)) == []


def test_exponents_are_learned_where_the_machine_changes_its_speed() -> None:
    random = np.random.default_rng(16)
    exponents = random.uniform(0.4, 1.6, 60)
    speed = 0.2 * random.standard_normal(REFERENCE)
    blocks = np.exp(speed[:, None] * exponents + 0.03 * random.standard_normal((REFERENCE, 60)))
    machine = MachineSpeed(np.ones(60), np.ones(60), blocks)
    np.testing.assert_allclose(machine.exponent, exponents / np.median(exponents), atol=0.1)
    assert machine.of(np.exp(0.3 * exponents)) == pytest.approx(0.3 * np.median(exponents), abs=0.03)


def test_exponents_are_one_where_places_follow_the_machine_or_it_does_not_change() -> None:
    random = np.random.default_rng(17)
    noise = 0.03 * random.standard_normal((REFERENCE, 60))
    still = MachineSpeed(np.ones(60), np.ones(60), np.exp(noise))
    assert (still.exponent == 1).all()
    moving = MachineSpeed(np.ones(60), np.ones(60), np.exp(noise + 0.2 * random.standard_normal((REFERENCE, 1))))
    np.testing.assert_allclose(moving.exponent, 1, atol=0.05)


def test_few_places_say_one_speed() -> None:
    machine = MachineSpeed(np.ones(5), np.ones(5), np.ones((REFERENCE, 5)))
    assert (machine.exponent == 1).all()
    assert machine.of(np.full(5, 2.0)) == pytest.approx(np.log(2))


def test_evidence_grows_no_faster_than_it_may_where_nothing_changes() -> None:
    """The bound that the false-alarm rate comes from: on average, evidence after n blocks is at most n."""
    random = np.random.default_rng(11)
    series, blocks = 20_000, 20
    evidence = Evidence(Usual(np.full(series, 0.05), np.full(series, LEAST)))
    for _ in range(blocks):
        # The worst that is allowed: as high as a series may lie, all the time.
        evidence.block(LEAST + 0.05 * random.standard_normal(series))
    won = evidence._won
    assert won.mean() <= 1.2 * blocks
    assert (won >= CERTAIN).sum() == 0


def test_a_series_that_wanders_may_lie_higher_and_one_that_is_noisy_may_not() -> None:
    random = np.random.default_rng(12)
    still = 0.01 * random.standard_normal((REFERENCE, 1))
    noisy = 0.06 * random.standard_normal((REFERENCE, 1))
    moving = still + 0.06 * np.sin(np.linspace(0, 12, REFERENCE))[:, None]
    usual = usual_of(np.hstack((still, noisy, moving)))
    assert usual.allowed[0] == LEAST
    assert usual.allowed[1] < 0.06
    assert usual.allowed[2] > 0.06
    assert usual.spread[1] == pytest.approx(0.06, rel=0.4)


def test_the_history_is_bounded_and_complete() -> None:
    random = np.random.default_rng(13)
    program = Program()
    times = np.cumsum(NOISES["quiet"](random, 20_000, 50) * shares(random), axis=0)
    follows = Lookout(program, lambda code: "train.py(3): train", lambda _: None)
    at = 0
    while at < len(times):
        program.ticks[program.leaves] = times[at]
        program.calls[program.leaves] = at
        at = follows.look(at, at)
    history = follows.history
    assert 32 <= len(history) <= 128
    assert len({period.steps for period in history}) == 1
    assert sum(period.steps for period in history) > 18_000
    assert all(period.calls == 50 * period.watched for period in history)
