"""Trees of many files as one: however they are grouped, the sum is the same; what cannot be read is left out and said."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lanewise.cli.main import cli
from lanewise.compare.diff import arms_of
from lanewise.diagnose.explain import explain
from lanewise.errors import InputError
from lanewise.measure.distributed.gathering.executor import Executor, executor_for
from lanewise.trace.reader import read
from lanewise.tree import fleet
from lanewise.tree.algebra import merge
from lanewise.tree.fleet import merge_fleet, trees_below
from lanewise.tree.model import METRICS, Tree
from lanewise.tree.tree_file import MAGIC, load, save
from tests.measure.distributed.test_executors import cluster, tasks_are_found  # noqa: F401
from tests.support.corpus import REPOSITORY
from tests.tree.samples import case_tree

WATCHED = sorted((REPOSITORY / "tests" / "data" / "watched").glob("*.lw"))


def scaled(tree: Tree, factor: int, source: str) -> Tree:
    metrics = {name: values * (factor if name == "host" else 1) for name, values in tree.metrics.items()}
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, metrics=metrics, info=tree.info,
    ).with_info(source=source)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty trees of four programs, in folders of days and hosts."""
    tmp_path = tmp_path_factory.mktemp("trees")
    for row in range(40):
        place = tmp_path / "fleet" / f"day{row // 20}" / f"host{row % 4}"
        place.mkdir(parents=True, exist_ok=True)
        save(scaled(load(WATCHED[row % 4]), row + 1, f"run{row}"), place / f"run{row}.lw")
    return tmp_path / "fleet"


def same(one: Tree, other: Tree) -> bool:
    """Equal to the last nanosecond; sums of fractions depend on the order by their last bit."""
    exact = [name for name in METRICS if name != "squares"]
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("parent", "kind", "phase", "forward"))
        and [one.strings[row] for row in one.name] == [other.strings[row] for row in other.name]
        and all(np.array_equal(one.metrics[name], other.metrics[name]) for name in exact)
        and np.allclose(one.metrics["squares"], other.metrics["squares"], rtol=1e-12)
        and one.info.source == other.info.source
        and one.info.step_count == other.info.step_count
    )


def test_the_sum_does_not_depend_on_how_files_are_grouped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = trees_below(folder)
    assert len(paths) == 40
    at_once = merge([load(path) for path in paths])
    assert at_once.info.source == "40 trees"
    assert at_once.info.trees == 40
    for part in (1, 7, 25):
        monkeypatch.setattr(fleet, "_PART", part)
        found = merge_fleet(paths)
        assert (found.files, found.unreadable) == (40, [])
        assert same(found.tree, at_once)


def test_other_processes_make_the_same_sum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_PART", 7)
    done: list[tuple[int, int]] = []
    found = merge_fleet(trees_below(folder), executor_for("processes=2"), progress=lambda at, of: done.append((at, of)))
    assert same(found.tree, merge_fleet(trees_below(folder)).tree)
    assert done[-1] == (40, 40)


@pytest.mark.slow
def test_a_cluster_makes_the_same_sum(
    cluster: Executor,  # noqa: F811
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "_PART", 10)
    (tmp_path / "broken.lw").write_bytes(MAGIC + b"no tree")
    found = merge_fleet([*trees_below(folder), tmp_path / "broken.lw"], cluster)
    assert same(found.tree, merge_fleet(trees_below(folder)).tree)
    assert found.files == 40
    assert [Path(name).name for name, _ in found.unreadable] == ["broken.lw"]


def test_adding_up_is_associative_for_traces_too() -> None:
    one, two, three = (case_tree(name) for name in ("checkpoint", "double_backward", "checkpoint"))
    left, right = merge([merge([one, two]), three]), merge([one, merge([two, three])])
    for name in METRICS:
        assert left.total(name) == right.total(name) if name not in ("shortest", "longest") else True
    assert len(left) == len(right)
    assert left.info.trees == right.info.trees == 3
    assert left.info.source == right.info.source


def test_a_sum_is_bounded_and_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = merge_fleet(trees_below(folder)).tree
    monkeypatch.setattr(fleet, "MOST_NODES", 100)
    monkeypatch.setattr(fleet, "_PART", 4)
    found = merge_fleet(trees_below(folder)).tree
    assert len(found) <= 300 < len(whole)
    assert found.info.truncated > 0
    for name in ("device", "host", "count"):
        assert found.total(name) == whole.total(name)


def test_what_cannot_be_read_is_left_out_and_named(folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder, tmp_path / "fleet"))
    victim = folder / "day0" / "host1" / "run1.lw"
    victim.write_bytes(victim.read_bytes()[:200])
    (folder / "day0" / "host1" / "notes.lw").write_text("no tree at all")
    (folder / "day0" / "host1" / "zero.lw").touch()
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "run.lw").write_bytes(WATCHED[0].read_bytes())
    found = merge_fleet(trees_below(folder))
    assert found.files == 39
    assert [name for name, _ in found.unreadable] == [str(victim), str(victim.with_name("zero.lw"))]
    assert ["ends early" in why or "is empty" in why for _, why in found.unreadable] == [True, True]
    result = CliRunner().invoke(cli, ["tree", str(folder), "--by", "operator"])
    assert result.exit_code == 0
    assert "39 of 41 trees are read; left out: " in result.stderr
    assert "and 1 more" in result.stderr
    assert "39 trees" in result.stdout


def test_nothing_readable_is_an_error_of_one_line(tmp_path: Path) -> None:
    for name in ("a.lw", "b.lw"):
        (tmp_path / name).write_bytes(WATCHED[0].read_bytes()[:300])
    with pytest.raises(InputError, match="none of 2 files is a readable tree"):
        merge_fleet(trees_below(tmp_path))
    result = CliRunner().invoke(cli, ["tree", str(tmp_path / "a.lw")])
    assert result.exit_code != 0
    assert "damaged" in str(result.exception)
    assert "none of" not in str(result.exception)


@pytest.mark.parametrize("verb", ["tree", "explain"])
def test_an_empty_folder_is_an_error_of_one_line(verb: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, [verb, str(tmp_path)])
    assert result.exit_code != 0
    assert "\n" not in str(result.exception)
    assert str(tmp_path) in str(result.exception)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    result = CliRunner().invoke(cli, ["tree", str(tmp_path)])
    assert "cannot read" in str(result.exception)


def test_traces_and_trees_are_explained_apart(folder: Path) -> None:
    trace = REPOSITORY / "tests" / "data" / "tree" / "checkpoint.json.gz"
    result = CliRunner().invoke(cli, ["explain", str(folder), str(trace)])
    assert "is no tree" in str(result.exception)


def test_an_unknown_place_is_an_error_of_one_line(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["tree", str(folder), "--on", "mars"])
    assert "'mars' is no place" in str(result.exception)
    trace = REPOSITORY / "tests" / "data" / "tree" / "checkpoint.json.gz"
    result = CliRunner().invoke(cli, ["tree", str(trace), "--on", "processes"])
    assert "there is none among the sources" in str(result.exception)


def test_a_folder_is_explained_as_its_sum(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["explain", str(folder / "day0")])
    assert result.exit_code == 0
    assert "tree of" in result.stdout
    assert result.stdout.count("\n") > 5


def test_two_folders_are_sides_of_a_comparison(folder: Path, tmp_path: Path) -> None:
    arms = arms_of([str(folder / "day0"), str(folder / "day1")], read_trace=lambda name: read(name))
    # Twenty files each: no more runs than a comparison needs, none of them left out.
    assert [len(arm.runs) for arm in arms] == [16, 16]
    assert sum(run.tree.info.trees for run in arms[0].runs if run.tree is not None) == 20
    few = tmp_path / "few"
    few.mkdir()
    for path in WATCHED[:1] * 3:
        save(load(path), few / f"{len(list(few.iterdir()))}.lw")
    (arm,) = arms_of([str(few)], read_trace=lambda name: read(name))
    assert len(arm.runs) == 3


def test_folders_of_trees_are_compared_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["diff", str(folder), str(folder)])
    assert result.exit_code == 0, result.output
    assert "per step" in result.output
    for sides in ([str(folder), str(tmp_path)], [str(tmp_path), str(folder)]):
        result = CliRunner().invoke(cli, ["diff", *sides])
        assert isinstance(result.exception, InputError)
        assert str(result.exception).startswith(f"{tmp_path}: no trace in it")


def test_a_sum_is_a_tree_that_is_added_up_again(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    for day in ("day0", "day1"):
        result = runner.invoke(cli, ["tree", str(folder / day), "--to", "tree", "-o", str(tmp_path / f"{day}.lwtree")])
        assert result.exit_code == 0, result.output
    week = merge([load(tmp_path / "day0.lwtree"), load(tmp_path / "day1.lwtree")])
    assert week.info.source == "40 trees"
    assert np.array_equal(week.metrics["host"], merge_fleet(trees_below(folder)).tree.metrics["host"])


def test_explain_of_the_library_takes_a_sum(folder: Path) -> None:
    assert explain(merge_fleet(trees_below(folder)).tree).findings


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    """The processes that read are not asked: they would each print a traceback."""
    for row in range(150):
        (tmp_path / f"run{row}.lw").write_bytes(WATCHED[row % 4].read_bytes())
    words = [sys.executable, "-m", "lanewise", "tree", str(tmp_path), "--to", "json"]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 20
        # Until a process of its own reads.
        while not _children(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said.strip()) == (130, "lanewise: interrupted")


def _children(pid: int) -> str:
    """Of any of its threads: those that read are not started by the first one."""
    found = ""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread has ended
            found += path.read_text()
    return found
