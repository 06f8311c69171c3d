"""A watched run in periods: added up they are the run, and only the latest stay."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import lanewise  # noqa: E402
from lanewise.capture.file.periods import Periods  # noqa: E402
from lanewise.errors import UsageError  # noqa: E402
from lanewise.tree.fleet import merge_fleet  # noqa: E402
from lanewise.tree.model import Tree  # noqa: E402
from lanewise.tree.tree_file import load  # noqa: E402


def _calls(tree: Tree) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in range(len(tree)):
        found[tree.label(node)] = found.get(tree.label(node), 0) + int(tree.metrics["calls"][node])
    return {name: calls for name, calls in found.items() if calls}


def _steps(watcher: lanewise.Watcher, seconds: float) -> None:
    x = torch.ones(8, 8)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.relu(x @ x)
        watcher.step()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.lw"
    with lanewise.watch(path, rotate=1, save_every=0.2, way="native", measure=False) as watcher:
        _steps(watcher, 2.6)
    return path


def test_periods_added_up_are_the_run(run: Path) -> None:
    files = sorted(run.with_name("run-periods").iterdir())
    assert len(files) >= 2
    whole, together = load(run), merge_fleet(files).tree
    assert _calls(together) == _calls(whole)
    assert together.total("host") == whole.total("host")
    assert together.info.step_count == whole.info.step_count
    assert not [name for name in together.info.filters if name == "minus"]


def test_a_period_holds_what_it_took_and_no_start_up_but_its_own(run: Path) -> None:
    parts = [load(path) for path in sorted(run.with_name("run-periods").iterdir())]
    watched = [part.info.watched for part in [*parts, load(run)]]
    assert [one.start_up_steps for one in watched if one][:2] == [1, 0]
    assert all(one and 0 < one.seconds <= 2 for one in watched[:-1])
    # A look comes in the middle of a step.
    assert abs(_calls(parts[1])["aten::relu"] - parts[1].info.step_count) <= 1


def test_the_oldest_are_deleted(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "long-periods"
    folder.mkdir()
    for name in ("long-20250101-000000.lw", "long-20250101-010000.lw", "other-20240101-000000.lw"):
        (folder / name).touch()
    Periods(tmp_path / "long.lw", 3600.0, 2, lambda tree, path: path.touch()).look(load(run), over=True)
    left = sorted(path.name for path in folder.iterdir())
    assert left[0] == "long-20250101-010000.lw"
    assert left[-1] == "other-20240101-000000.lw"
    assert len(left) == 3


def test_before_its_time_nothing_is_written(run: Path, tmp_path: Path) -> None:
    periods = Periods(tmp_path / "long.lw", 3600.0, 2, lambda tree, path: path.touch())
    periods.look(load(run), over=False)
    assert not (tmp_path / "long-periods").exists()
    periods.look(load(run), over=True)
    assert len(list((tmp_path / "long-periods").iterdir())) == 1


def test_without_a_file_there_are_no_periods() -> None:
    with pytest.raises(UsageError, match="a second at least"):
        lanewise.watch(rotate=60)
