"""The store: opened copies equal what was read, and nothing about the store can break a read."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from lanewise.trace.file import parquet_cache as store
from lanewise.trace.file.parquet_cache import Store
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.trace.schema import TABLES
from tests.support.corpus import DATA

SMALL = DATA / "03_mnist_train_stack.json.gz"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own that keeps small traces, too."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(cache))
    monkeypatch.setattr(store, "_WORTH_EVENTS", 0)
    return cache


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("traces-*/*"))


def read_and_keep(path: Path) -> Trace:
    trace = read(path)
    store.wait()
    return trace


def assert_same(one: Trace, two: Trace) -> None:
    for table, columns in TABLES.items():
        for column in columns:
            assert one[table][column].dtype == two[table][column].dtype
            np.testing.assert_array_equal(one[table][column], two[table][column], err_msg=f"{table}.{column}")
    assert list(one.names) == list(two.names)
    assert list(one.texts) == list(two.texts)
    assert one.metadata == two.metadata
    assert one.base_ns == two.base_ns


def test_the_second_read_opens_the_copy_of_the_first(folder: Path, tmp_path: Path) -> None:
    first = read_and_keep(SMALL)
    assert not first.reading.from_cache
    assert first.reading.cache == ""
    elsewhere = tmp_path / "renamed.json.gz"
    shutil.copy(SMALL, elsewhere)
    second = read(elsewhere)
    assert second.reading.from_cache
    assert second.reading.source == str(elsewhere)
    assert second.reading.digest == first.reading.digest
    assert second.reading.rows_by_category == first.reading.rows_by_category
    assert_same(first, second)
    assert not second.start.flags.writeable
    assert len(entries(folder)) == 1


def test_any_tool_can_open_the_tables(folder: Path) -> None:
    polars = pytest.importorskip("polars")
    trace = read_and_keep(SMALL)
    frame = polars.read_parquet(entries(folder)[0] / "events.parquet")
    assert frame["duration"].to_list() == trace.duration.tolist()


def test_other_content_of_the_same_size_is_another_trace(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = gzip.decompress(SMALL.read_bytes())
    path.write_bytes(text)
    read_and_keep(path)
    path.write_bytes(text.replace(b'"aten::', b'"bten::'))
    assert "bten::empty" in read_and_keep(path).names
    assert len(entries(folder)) == 2


def test_no_cache_touches_nothing(folder: Path) -> None:
    read(SMALL, cache=False)
    store.wait()
    assert not folder.exists()


def test_small_traces_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_WORTH_EVENTS", 10**6)
    read_and_keep(SMALL)
    assert not entries(folder)


def test_a_damaged_copy_is_thrown_away(folder: Path) -> None:
    first = read_and_keep(SMALL)
    (entry,) = entries(folder)
    (entry / "events.parquet").write_bytes(b"PAR1 nonsense")
    second = read_and_keep(SMALL)
    assert not second.reading.from_cache
    assert_same(first, second)
    assert read(SMALL).reading.from_cache


def test_another_schema_does_not_see_the_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_and_keep(SMALL)
    monkeypatch.setattr(store, "_REVISION", -1)
    assert not read_and_keep(SMALL).reading.from_cache


def test_a_store_that_cannot_be_written_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(blocked / "below"))
    trace = read_and_keep(SMALL)
    assert len(trace) == 1975
    assert trace.reading.cache.startswith("not kept: ")


def test_a_full_disk_is_noted_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(trace: Trace, unfinished: Path) -> None:
        (unfinished / "events.parquet").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_save", full)
    trace = read_and_keep(SMALL)
    assert "No space left" in trace.reading.cache
    assert not entries(folder)


def test_the_copies_used_longest_ago_go_first(folder: Path, tmp_path: Path) -> None:
    names = ["01_matmul_add_64_cold_eager", "01_matmul_add_64_warm_eager", "01_matmul_add_64_nowait"]
    paths = [DATA / f"{name}.json.gz" for name in names]
    for age, path in enumerate(paths[:2]):
        read_and_keep(path)
        (newest,) = set(entries(folder)) - {p for p in entries(folder) if p.stat().st_mtime < 2000}
        os.utime(newest, (1000 + age, 1000 + age))
    assert read(paths[0]).reading.from_cache  # used: the second is now the oldest
    one = sum(file.stat().st_size for file in entries(folder)[0].iterdir())
    small = Store(cap_bytes=int(one * 2.5))
    small.keep(read(paths[2], cache=False), paths[2].stat().st_size)
    store.wait()
    assert len(entries(folder)) == 2
    assert [read(path).reading.from_cache for path in paths] == [True, False, True]


def test_a_cap_of_zero_turns_it_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_BYTES", "0")
    read_and_keep(SMALL)
    assert not folder.exists()


def test_leftovers_of_killed_processes_are_removed(folder: Path) -> None:
    read_and_keep(SMALL)
    parent = entries(folder)[0].parent
    old, new = parent / "unfinished-old", parent / "unfinished-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (1000, 1000))
    read_and_keep(DATA / "01_matmul_add_64_nowait.json.gz")
    assert not old.exists()
    assert new.exists()


def _race(path: str, barrier: threading.Barrier, results: multiprocessing.Queue[bool]) -> None:
    store._WORTH_EVENTS = 0
    barrier.wait()
    trace = read(path)
    store.wait()
    results.put(trace.reading.cache == "" and len(trace) == 1975)


def test_racing_processes_keep_one_copy(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    children = [context.Process(target=_race, args=(str(SMALL), barrier, results)) for _ in range(3)]
    for child in children:
        child.start()
    assert [results.get(timeout=60) for _ in children] == [True] * 3
    for child in children:
        child.join()
    assert len(entries(folder)) == 1
    assert read(SMALL).reading.from_cache


def test_a_file_that_changes_while_it_is_read_is_not_kept(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    shutil.copy(SMALL, path)
    read(path, progress=lambda *_: path.write_bytes(b"something else"))
    store.wait()
    assert not entries(folder)
