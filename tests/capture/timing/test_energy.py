"""Energy per step from a counter that moves in jumps."""

from __future__ import annotations

import random

import pytest

from lanewise.capture.context.pace import Pace
from lanewise.capture.context.turns import Turns
from lanewise.capture.schedule import Plan
from lanewise.capture.timing.energy import Meter
from lanewise.capture.window import Phase
from lanewise.trace.metadata import Energy, Recorded, from_metadata, to_json
from tests.capture.fakes import Bench


class Card:
    """A device that draws `watts`; its counter moves every `jump` seconds, and takes `reading` to be read."""

    def __init__(self, watts: float, jump: float, reading: float = 3e-5) -> None:
        self.time = 100.0
        self.watts, self.jump, self.reading = watts, jump, reading
        self.reads = 0

    def now(self) -> float:
        return self.time

    def joules(self) -> float:
        self.time += self.reading
        self.reads += 1
        return 1e6 + self.watts * self.jump * int(self.time / self.jump)


def metered(card: Card, step_s: float, *, most: int = 1_000_000) -> tuple[Energy | None, int]:
    """What a meter says, and after how many steps it had enough; steps vary by 5 %."""
    meter, noise = Meter(card.joules, card.now), random.Random(1)
    for step in range(most):
        card.time += step_s * noise.uniform(0.95, 1.05)
        if meter.boundary():
            return meter.energy, step + 1
    return meter.energy, most


@pytest.mark.parametrize("jump", [0.02, 0.1])
@pytest.mark.parametrize("step_s", [1e-4, 5e-3, 0.11, 0.7])
def test_joules_of_a_step_are_within_three_percent(step_s: float, jump: float) -> None:
    energy, steps = metered(Card(350.0, jump), step_s)
    assert energy is not None
    # A counter that moves every 100 ms is known to that in 2 s of steps: to 5 %, and to 3 % with the quicker one.
    tolerance = 0.03 if jump < 0.05 or step_s < 0.1 else 0.05
    assert energy.joules / energy.steps == pytest.approx(350.0 * step_s, rel=tolerance)
    assert energy.joules / energy.seconds == pytest.approx(350.0, rel=tolerance)
    assert steps * step_s < 9


def test_the_counter_is_not_read_at_every_boundary() -> None:
    card = Card(350.0, 0.02)
    _, steps = metered(card, 1e-4)
    assert card.reads < steps / 50


def test_a_few_steps_tell_nothing() -> None:
    energy, _ = metered(Card(350.0, 0.02), 1e-2, most=40)
    assert energy is None


def test_a_counter_that_stands_still_or_fails_is_given_up() -> None:
    class Still(Card):
        def joules(self) -> float:
            return 5.0

    energy, steps = metered(Still(0.0, 1.0), 0.1)
    assert energy is None
    assert steps < 100
    assert Meter(lambda: None, lambda: float(steps)).boundary() is False


SMALL = Plan(skip=1, timed_min=3, timed_max=3, warmup=1, active_min=3, active_max=3)


class Counted:
    """Has enough after so many boundaries."""

    energy = Energy(joules=12.0, steps=4, seconds=0.5)

    def __init__(self, enough: int) -> None:
        self.left = enough

    def boundary(self) -> bool:
        self.left -= 1
        return self.left <= 0


def test_energy_is_counted_after_the_recording_and_before_the_end() -> None:
    bench = Bench(SMALL)
    bench.meter = Counted(5)
    bench.steps(9)
    assert bench.window.phase is Phase.METERED
    assert bench.log[-1] == "recorded"
    bench.steps(4)
    assert bench.window.measured.energy is None
    bench.steps(1)
    assert (bench.window.phase, bench.log[-1]) == (Phase.DONE, "done")
    assert bench.window.measured.energy == Counted.energy


def test_a_program_that_ends_meanwhile_keeps_what_was_counted() -> None:
    bench = Bench(SMALL)
    bench.meter = Counted(100)
    bench.steps(12)
    bench.window.finish("program ended")
    assert bench.window.measured.energy == Counted.energy
    assert bench.window.measured.stopped_by == "cap"
    assert bench.log[-1] == "done"


def test_it_stands_in_the_trace() -> None:
    recorded = Recorded(energy=Energy(joules=12.5, steps=4, seconds=0.5))
    assert from_metadata({"lanewise": to_json(recorded)}) == recorded
    for wrong in ({"joules": -1, "steps": 4, "seconds": 1}, {"joules": 1.0, "steps": 0, "seconds": 1.0}, "much"):
        read = from_metadata({"lanewise": {"energy": wrong}})
        assert read is not None
        assert read.energy is None


class _Collector:
    windowed = False

    def on(self) -> None: ...
    def off(self) -> None: ...
    def started_up(self) -> None: ...
    def ready(self) -> None: ...


def test_watching_counts_from_the_first_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1000.0, 1090.0])
    monkeypatch.setattr("lanewise.capture.context.pace.energy_counter", lambda: lambda: next(readings))
    pace = Pace(Turns())
    pace.begin(_Collector())  # type: ignore[arg-type]
    for _ in range(10):
        pace.boundary()
    energy = pace.energy
    assert energy is not None
    assert (energy.joules, energy.steps) == (90.0, 9)
    assert energy.seconds > 0


def test_watching_without_a_counter_says_nothing() -> None:
    pace = Pace(Turns())
    pace.begin(_Collector())  # type: ignore[arg-type]
    pace.boundary()
    assert pace.energy is None
