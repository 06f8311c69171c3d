"""Reading the ranks of a job: each trace once, by itself, and by several processes."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from lanewise.errors import InputError
from lanewise.measure.distributed.gathering import processes
from lanewise.measure.distributed.gathering import rank_worker as module
from lanewise.measure.distributed.gathering.read_ranks import read_ranks
from lanewise.measure.distributed.rank_summary import with_shared
from tests.support.real_jobs import PIPELINE, job_paths, job_summaries


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, with a store of its own."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "store"))
    (tmp_path / "job").mkdir()
    for path in job_paths(PIPELINE):
        shutil.copy(path, tmp_path / "job")
    return tmp_path / "job"


def unread(*_: object, **__: object) -> None:
    raise AssertionError("a trace was read again")


def test_a_trace_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_ranks([str(folder)])
    monkeypatch.setattr(module, "read_recorded", unread)
    assert read_ranks([str(folder)]) == first
    assert [rank.file for rank in first.ranks] == sorted(path.name for path in folder.iterdir())


def test_another_name_is_the_same_trace_and_another_content_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_ranks([str(folder)])
    moved = folder.rename(folder.with_name("moved"))
    (moved / before.ranks[0].file).rename(moved / "first.json.gz")
    with monkeypatch.context() as patched:
        patched.setattr(module, "read_recorded", unread)
        assert read_ranks([str(moved)]).ranks[0].file == "first.json.gz"
        (moved / "first.json.gz").write_bytes((moved / "first.json.gz").read_bytes() + gzip.compress(b"\n"))
        with pytest.raises(AssertionError, match="read again"):
            read_ranks([str(moved)])


@pytest.mark.parametrize("way", ["cap", "option"])
def test_nothing_is_kept_where_that_is_off(folder: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "cap":
        monkeypatch.setenv("LANEWISE_CACHE_BYTES", "0")
    read_ranks([str(folder)], cache=way == "cap")
    assert not (folder.parent / "store").exists()


def test_several_processes_say_the_same(folder: Path) -> None:
    (folder / "rank9.json").write_text("no trace")
    names = [str(path) for path in sorted(folder.iterdir())]
    together = read_ranks(names, cache=False, workers=2)
    assert together.ranks == [with_shared(one, {}) for one in job_summaries(PIPELINE)]
    assert together == read_ranks(names, cache=False, workers=1)
    assert [Path(name).name for name, _ in together.unreadable] == ["rank9.json"]


def test_missing_ranks_are_known_by_the_size_of_the_job(folder: Path) -> None:
    for path in sorted(folder.iterdir())[1:3]:
        path.unlink()
    assert read_ranks([str(folder)]).missing == [1, 2]


def test_a_process_that_dies_costs_only_its_ranks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match="the process that read it ended"):
        read_ranks([str(folder)], cache=False, workers=2)
