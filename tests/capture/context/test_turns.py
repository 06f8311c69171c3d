"""Which steps are watched, and what that says about the cost."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.capture.context.turns import StepTimes, Turns  # noqa: E402
from tests.capture.context.paths import calls, names  # noqa: E402


def test_a_few_of_every_many() -> None:
    turns = Turns(every=10, steps=2, skip=5)
    assert [step for step in range(40) if turns.watched(step)] == [5, 6, 15, 16, 25, 26, 35, 36]
    assert not turns.compared(4)
    assert turns.compared(9)


def test_all_but_those_that_measure() -> None:
    turns = Turns(skip=2, pairs=4)
    left_out = [step for step in range(100) if not turns.watched(step)]
    assert left_out == [3, 4, 7, 8]
    assert [step for step in range(100) if turns.compared(step)] == list(range(2, 10))
    assert all(Turns(pairs=0).watched(step) for step in range(50))


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
