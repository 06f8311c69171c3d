"""A live program against trees of other runs: what is dearer is told once, healthy ones are silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lanewise.tree.forest import nearest_marked
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.slowing import against_baseline
from lanewise.tree.slowing.against_baseline import WHOLE, AgainstBaseline
from lanewise.tree.slowing.slowdown import Slowdown
from lanewise.tree.tree_file import load, save
from lanewise.tree.watching.watched_text import slowdown_line
from tests.support.corpus import REPOSITORY

WATCHED = REPOSITORY / "tests" / "data" / "watched"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(against_baseline, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(against_baseline, "CROWDED", 1e9)


def base() -> Tree:
    return load(WATCHED / "resnet.lw")


def of(tree: Tree, steps: int, host: np.ndarray | float = 1.0, calls: np.ndarray | float = 1.0) -> Tree:
    """As if so many steps had been watched."""
    factors = {"host": host, "calls": calls}
    per_step = steps / tree.info.step_count
    metrics = {
        name: np.round(values * factors.get(name, 1.0) * per_step).astype(values.dtype)
        for name, values in tree.metrics.items()
    }
    watched = tree.info.watched
    assert watched is not None
    changed = Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, metrics=metrics, info=tree.info,
    )  # fmt: skip
    return changed.with_info(watched=replace(watched, steps_watched=steps, steps_seen=steps, start_up_steps=1))


def noise(tree: Tree, seed: int) -> np.ndarray:
    """As processes differ: the whole by a fifth, each place by some percent more."""
    made = np.random.default_rng(seed)
    return made.uniform(0.9, 1.1) * made.normal(1, 0.03, len(tree)).clip(0.5)


def inside(tree: Tree, name: str) -> np.ndarray:
    named = (tree.kind == NodeKind.MODULE) & np.array([tree.label(n) == name for n in range(len(tree))])
    assert named.any()
    return nearest_marked(tree.parent, named) >= 0


def baseline(folder: Path, runs: int) -> Path:
    tree = base()
    folder.mkdir()
    for run in range(runs):
        save(of(tree, 500, noise(tree, run)), folder / f"{run}.lw")
    return folder


def followed(
    source: Path, host: np.ndarray | float, looks: int = 9, calls: np.ndarray | float = 1.0
) -> tuple[list[Slowdown], list[str]]:
    """What is told of a program whose tree is looked at after every hundred steps."""
    found: list[Slowdown] = []
    said: list[str] = []
    against = AgainstBaseline(source, found.append, said.append)
    tree = base()
    for look in range(1, looks + 1):
        against.look(of(tree, 100 * look, host * noise(tree, 77), calls))
    return found, said


@pytest.mark.parametrize("runs", [1, 3, 4, 6, 40])
def test_the_same_program_is_silent(tmp_path: Path, runs: int) -> None:
    assert followed(baseline(tmp_path / "old", runs), 1.0) == ([], [])


@pytest.mark.parametrize(("runs", "times"), [(1, 1.6), (4, 1.4), (40, 1.4)])
def test_a_place_that_takes_longer_is_told_once(tmp_path: Path, runs: int, times: float) -> None:
    found, said = followed(baseline(tmp_path / "old", runs), np.where(inside(base(), "layer1"), times, 1.0))
    assert said == []
    assert found
    assert len({(one.path, one.what) for one in found}) == len(found)
    assert all("layer1" in " ".join(one.path) and one.against == "old" for one in found)
    assert all(1.2 * one.before < one.after < 2 * one.before for one in found)
    assert "slower than in old: " in slowdown_line(found[0])


def test_with_few_runs_a_little_more_is_not_told(tmp_path: Path) -> None:
    host = np.where(inside(base(), "layer1"), 1.2, 1.0)
    assert followed(baseline(tmp_path / "few", 1), host) == ([], [])
    assert followed(baseline(tmp_path / "more", 6), host)[0]


def test_nothing_is_told_while_others_have_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against_baseline, "CROWDED", -1.0)
    host = np.where(inside(base(), "layer1"), 3.0, 1.0)
    assert followed(baseline(tmp_path / "old", 4), host) == ([], [])


def test_one_slow_stretch_is_an_interruption(tmp_path: Path) -> None:
    source = baseline(tmp_path / "old", 4)
    found: list[Slowdown] = []
    against = AgainstBaseline(source, found.append, lambda _: None)
    tree, sofar = base(), np.zeros(len(base()))
    for look in range(1, 12):
        sofar = sofar + np.where(inside(tree, "layer1"), 3.0 if look % 4 == 0 else 1.0, 1.0)
        against.look(of(tree, 100 * look, sofar / look))
    assert found == []


def test_a_step_that_takes_longer_as_a_whole_is_told_as_such(tmp_path: Path) -> None:
    found, _ = followed(baseline(tmp_path / "old", 4), 1.9)
    assert [one.path for one in found] == [(WHOLE,)]


def test_more_calls_are_told_as_calls(tmp_path: Path) -> None:
    more = np.where(inside(base(), "fc"), 3.0, 1.0)
    found, _ = followed(baseline(tmp_path / "old", 1), more, calls=more)
    calls = [one for one in found if one.what == "calls"]
    assert calls
    assert "entered " in slowdown_line(calls[0])
    assert "fc" in calls[0].path


def test_what_is_wrong_with_the_baseline_is_said_once_and_ends_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.lw").write_text("no tree")
    save(of(load(WATCHED / "mnist.lw"), 100), tmp_path / "other.lw")
    said = {name: followed(tmp_path / name, 1.0) for name in ("empty", "text.lw", "missing.lw", "other.lw")}
    assert all(found == [] and len(lines) == 1 for found, lines in said.values())
    assert "holds no trees of `lanewise watch`" in said["empty"][1][0]
    assert "another program" in said["other.lw"][1][0]
    # Without steps there is nothing per step.
    assert "--step-on" in followed(WATCHED / "attention.lw", 1.0)[1][0]
