"""Trees as sides of a comparison: what is added up is what its parts are, and single values are said to be that."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from lanewise.compare.diff import diff
from lanewise.compare.model import Comparison
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.tree.algebra import merge
from lanewise.tree.model import Tree
from lanewise.tree.slowing.slowdown import Period
from lanewise.tree.tree_file import load, save
from lanewise.tree.watching.watched import Distortion, Watched
from tests.support.corpus import REPOSITORY

WATCHED = REPOSITORY / "tests" / "data" / "watched"


def rank(**changes: Any) -> Tree:
    """A job's rank: a collected tree in which something else is known of the collection."""
    tree = load(WATCHED / "optimizer_good.lw")
    watched = tree.info.watched
    assert isinstance(watched, Watched)
    info = dataclasses.replace(tree.info, watched=dataclasses.replace(watched, **changes))
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, metrics=tree.metrics, info=info,
    )  # fmt: skip


def compared(folder: Path, before: list[Tree], after: list[Tree]) -> Comparison:
    """Two folders of trees, and each as a file if it is one tree."""
    sides: list[Path] = []
    for name, trees in (("before", before), ("after", after)):
        (folder / name).mkdir()
        for number, tree in enumerate(trees):
            save(tree, folder / name / f"{number}.lw")
        sides.append(folder / name if len(trees) > 1 else folder / name / "0.lw")
    return diff(*sides)


@pytest.mark.parametrize(
    "second",
    [Distortion(1.3, 1.25, 1.35, 20, 20), Distortion(1.72, 1.15, 3.85, 20, 20), Distortion(1.2, 0.7, 1.8, 20, 20)],
    ids=["known", "wide", "unknown"],
)
def test_ranks_in_one_tree_take_a_step_of_the_same_time_as_in_a_folder(tmp_path: Path, second: Distortion) -> None:
    ranks = [rank(distortion=Distortion(1.2, 1.15, 1.25, 20, 20), seconds=7.0), rank(distortion=second, seconds=7.5)]
    found = compared(tmp_path, ranks, [merge(ranks)])
    assert found.base.runs == 2
    assert found.others[0].step_ns == pytest.approx(found.base.step_ns, rel=0.02)
    assert found.differences[0].step.ratio == pytest.approx(1, abs=0.02)


def test_what_watching_costs_is_divided_by_as_far_as_it_is_certain() -> None:
    for told, expected in (
        (Distortion(1.3, 1.2, 1.4, 20, 20), 1.3),
        (Distortion(1.72, 1.15, 3.85, 20, 20), 1.15),
        (Distortion(1.2, 0.7, 1.8, 20, 20), 1.0),
    ):
        step = Contexts(rank(distortion=told)).step
        assert step.recorded / step.ns == pytest.approx(expected)
        assert step.low <= step.ns <= step.high


def test_two_single_values_are_no_steps(tmp_path: Path) -> None:
    told = compared(tmp_path, [rank()], [load(WATCHED / "optimizer_loop.lw")]).differences[0]
    assert "one value per side, and the spread to expect between runs" in told.verdict
    assert "1 and 1" not in told.verdict


def test_one_tree_against_a_folder_is_one_run_against_several(tmp_path: Path) -> None:
    told = compared(tmp_path, [rank()], [rank(), rank(), rank()]).differences[0]
    assert (told.step.unit, told.step.a_count, told.step.b_count) == ("runs", 1, 3)


def test_a_run_whose_steps_differ_much_decides_less(tmp_path: Path) -> None:
    calm, restless = (
        rank(history=tuple(Period(4, ns, 4, 100) for _ in range(10) for ns in (4_000_000, slow)))
        for slow in (4_100_000, 16_000_000)
    )
    widths: list[float] = []
    for name, tree in (("calm", calm), ("restless", restless)):
        (tmp_path / name).mkdir()
        step = compared(tmp_path / name, [rank()], [tree]).differences[0].step
        assert step.low is not None
        assert step.high is not None
        widths.append(step.high / step.low)
    assert widths[1] > 2 * widths[0]
