"""Which steps are watched, and what that says about the cost."""

from __future__ import annotations

import copy
import time
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.capture.context.noticing import cost_of_noticing  # noqa: E402
from lanewise.capture.context.pace import Pace  # noqa: E402
from lanewise.capture.context.turns import StepTimes, Turns  # noqa: E402
from lanewise.capture.timing.watch_budget import Budget  # noqa: E402
from lanewise.tree.watching.watched import Watched  # noqa: E402
from tests.capture.context.paths import calls, names  # noqa: E402


def test_a_few_of_every_many() -> None:
    turns = Turns(every=10, steps=2, skip=5)
    assert [step for step in range(40) if turns.watched(step)] == [5, 6, 15, 16, 25, 26, 35, 36]
    assert [step for step in range(30) if turns.compared(step)] == [5, 6, 13, 14, 15, 16, 23, 24, 25, 26]


def test_all_but_those_that_measure() -> None:
    turns = Turns(skip=2, pairs=4)
    left_out = [step for step in range(100) if not turns.watched(step)]
    assert left_out == [3, 4, 7, 8]
    assert [step for step in range(100) if turns.compared(step)] == list(range(2, 10))
    assert all(Turns(pairs=0).watched(step) for step in range(50))


@pytest.mark.parametrize(
    "turns",
    [Turns(skip=2, pairs=4), Turns(pairs=0), Turns(every=10, steps=2), Turns(every=2), Turns(every=3, steps=3)],
)
def test_quiet_steps_need_nothing(turns: Turns) -> None:
    for step in range(80):
        until = turns.quiet_until(step)
        assert until >= step
        for quiet in range(step, min(until, 80)):
            # The step that ends and the one after it are alike, neither is timed, and no window is near.
            assert turns.watched(quiet) == turns.watched(quiet + 1) == turns.watched(quiet + 2)
            assert not turns.compared(quiet)
            assert not turns.compared(quiet + 1)


def test_noticing_a_step_is_part_of_what_it_costs() -> None:
    times = StepTimes()
    for _ in range(10):
        times.add(10_000, on=True)
        times.add(8_000, on=False)
    found = times.distortion(around=3_000, within=1_000)
    assert found is not None
    assert (found.ratio, found.step_ns, found.notice_ns) == (2.2, 5_000, 4_000)


@pytest.mark.parametrize("source", ["forward", "optimizer"])
def test_what_noticing_costs_is_what_a_clock_around_the_loop_sees(source: str) -> None:
    net, x = torch.nn.Linear(4, 4), torch.ones(4, 4)
    optimizer = torch.optim.SGD(net.parameters())
    step = optimizer.step if source == "optimizer" else lambda: net(x)

    def fastest() -> float:
        best = float("inf")
        for _ in range(100):
            begin = time.perf_counter_ns()
            for _ in range(50):
                step()
            best = min(best, (time.perf_counter_ns() - begin) / 50)
        return best

    with torch.no_grad():
        # On a busy machine a hundred short loops may all be disturbed.
        for _ in range(5):
            plain = fastest()
            # Never on: only the hook is left.
            with lanewise.watch(way="native", every=10**9):
                step()
                hooked = fastest()
            found = sum(cost_of_noticing(source))
            if 0.4 < found / (hooked - plain) < 2.5:
                break
    assert 0.4 < found / (hooked - plain) < 2.5
    assert found > 300


def test_a_watcher_of_tiny_steps_says_the_whole_cost() -> None:
    net, x = torch.nn.Linear(4, 4), torch.ones(4, 4)
    with torch.no_grad(), lanewise.watch(way="native") as watcher:
        for _ in range(100):
            net(x)
        alone = watcher.tree.info.watched.distortion
    found = watcher.tree.info.watched.distortion
    assert alone.notice_ns == 0
    assert found.notice_ns > 300
    assert found.ratio > alone.ratio
    assert found.step_ns < alone.step_ns


def test_distortion_is_the_ratio_of_medians() -> None:
    times = StepTimes()
    for _ in range(10):
        times.add(1_100, on=True)
        times.add(1_000, on=False)
    found = times.distortion()
    assert found is not None
    assert (found.ratio, found.low, found.high, found.on, found.off) == (1.1, 1.1, 1.1, 10, 10)
    few = StepTimes()
    few.add(1, on=True)
    assert few.distortion() is None


def trained(count: int, **options: Any) -> Any:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    with lanewise.watch(**options) as watcher:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert watcher.problem == ""
    return watcher.tree


def test_only_watched_steps_are_in_the_tree() -> None:
    tree = trained(60, every=10, steps=2, way="native")
    watched = tree.info.watched
    assert (watched.steps_seen, watched.steps_watched) == (60, 12)
    assert calls(tree, "aten::linear") == 12
    assert tree.info.step_count == 12
    assert watched.distortion is not None


def test_early_steps_measure_the_cost() -> None:
    tree = trained(80, way="native")
    watched = tree.info.watched
    assert (watched.steps_seen, watched.steps_watched) == (80, 60)
    assert (watched.distortion.on, watched.distortion.off) == (20, 20)
    assert watched.distortion.low <= watched.distortion.ratio <= watched.distortion.high


def test_steps_that_the_program_says_itself() -> None:
    x = torch.ones(2)
    with lanewise.watch(measure=False, way="native") as watcher:
        for _ in range(7):
            x.add(x)
            watcher.step()
    assert watcher.tree.info.step_count == 7
    assert calls(watcher.tree, "aten::add") == 7


def test_windows_fold_to_the_same_kind_of_tree() -> None:
    tree = trained(40, every=10, way="windows")
    watched = tree.info.watched
    assert watched.way == "windows"
    assert watched.steps_watched == 4
    assert calls(tree, "aten::linear") == 4
    assert {"aten::linear", "AddmmBackward0"} <= names(tree)
    assert tree.info.frames


def test_windows_need_steps() -> None:
    with lanewise.watch(way="windows") as watcher:
        torch.ones(1).add(1)
    assert "no window has been folded" in watcher.problem


def test_a_budget_is_kept_to_and_modules_and_phases_are_right() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x).relu()
            return x

    net, x = Net(), torch.randn(8, 16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    def so_far() -> Watched:
        found = watcher.tree.info.watched
        assert found is not None
        return found

    watcher = lanewise.watch(way="native", budget=0.05)
    with watcher:
        # What a window costs decides when the next one comes: on a busy machine there are few of them, and wherever the run
        # ends, it may stand in one, which is to end.
        for _ in range(200):
            for _ in range(100):
                step()
            if so_far().steps_seen >= 1_500 and so_far().sampling_error >= 0:
                break
        before = -1
        while before != (now := so_far().steps_watched):
            before = now
            step()
    tree = watcher.tree
    watched = tree.info.watched
    assert watcher.problem == ""
    assert watched is not None
    assert watched.budget == 0.05
    assert watched.every >= 14
    assert watched.steps == 8
    assert 40 <= watched.steps_watched <= watched.steps_seen / 2
    assert watched.steps_watched % 8 == 0
    assert 0 < watched.sampling_error <= 1
    # As many of everything as steps were watched, in each phase and module.
    assert calls(tree, "aten::linear") == 4 * watched.steps_watched
    assert {f"layers.{at}" for at in range(4)} <= names(tree)
    frame = tree.frame()
    assert {"forward", "backward", "optimizer"} <= set(frame["phase"])


@pytest.mark.parametrize("turns", [Budget(0.05), Turns(every=50, steps=5)], ids=["budget", "every"])
@pytest.mark.parametrize("slowed", [1.0, 1.3])
def test_time_in_steps_that_come_rarely_is_not_lost_from_sight(
    turns: Turns | Budget, slowed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Program:
        windowed = on_now = False

        def on(self) -> None:
            self.on_now = True
            clock[0] += 200_000

        def off(self) -> None:
            self.on_now = False

        def started_up(self) -> None: ...

    clock = [0]
    now = SimpleNamespace(perf_counter_ns=lambda: clock[0], perf_counter=lambda: clock[0] / 1e9)
    monkeypatch.setattr("lanewise.capture.context.pace.time", now)
    unseen: list[float] = []
    for rare in (0, 50_000_000):
        program, pace = Program(), Pace(copy.deepcopy(turns))
        pace.begin(program)  # type: ignore[arg-type]
        waiting = 0
        for step in range(6_000):
            waiting += rare if step % 500 == 0 else 0
            clock[0] += round(1_000_000 * (slowed if program.on_now else 1.0))
            if waiting and not program.on_now:  # so that no window sees it
                clock[0] += waiting
                waiting = 0
            pace.boundary()
        unseen.append(pace.unseen)
    # Of 500 steps of 1 ms and one of 50 ms on top of them.
    assert unseen == [pytest.approx(0.0, abs=0.003), pytest.approx(50 / 550, abs=0.01)]


def test_a_budget_stands_in_the_place_of_every() -> None:
    with pytest.raises(lanewise.UsageError):
        lanewise.watch(budget=0.01, every=50)
    with pytest.raises(lanewise.UsageError):
        lanewise.watch(budget=2.0)
