"""What a folder means: the traces in it, and nothing that lies beside them."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest

from lanewise.errors import InputError, NotATraceError
from lanewise.trace.file.folder import traces_in
from lanewise.trace.reader import read

TRACE = json.dumps(
    {
        "schemaVersion": 1,
        "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5}],
    }
).encode()
ROWS = json.dumps(json.loads(TRACE)["traceEvents"]).encode()

BESIDE = {
    "a.report.json": b'{\n  "schema": "lanewise.report/1", "version": "1"}',
    "lanewise-baseline.json": b'{ "schema": "lanewise.baseline/1", "runs": []}',
    "plan.json": b'{"schema":"lanewise.saved-plan/1"}',
    "tables.json": b'{"schema":"lanewise.tables/1","tables":{}}',
    "packed.report.json.gz": gzip.compress(b'{"schema": "lanewise.report/1"}'),
    "t.perfetto.json.gz": gzip.compress(b'{"schema":"lanewise.perfetto-export/1","traceEvents":[{"ph":"X"}]}'),
    "saved.lwtree": b"LWTREE\x00\x01rest",
    "saved-as.json": b"LWTREE\x00\x01rest",
    "empty.json": b"",
    "empty.json.gz": b"",
    "object.json": b"{}",
    "list.json": b"[]",
    "number.json": b"17",
    "package.json": b'{"name": "web", "version": "1.0", "dependencies": {}}',
    "bench.json": b'[{"name": "step", "unit": "us", "value": 3}]',
    "processes.json": b'[{"pid": 1, "name": "init", "args": []}]',
    "log.json": b'{"name": "a", "ts": 1}\n{"name": "b", "ts": 2}\n',
    "cut.json": b'{"schemaVersion": 1, "deviceProp',
    "no-events.json": b'{"schemaVersion": 1, "deviceProperties": []}',
    "half.json.gz": gzip.compress(TRACE)[:9],
    "text.json": b"Traceback (most recent call last):",
    "binary.trace": bytes(range(256)),
    "snapshot.json": b"\x80\x04\x95",
    "notes.txt": TRACE,
    "t.json.gz.part": gzip.compress(TRACE),
    ".recording-abc.json": TRACE,
    ".recording-abc.json.tmp": TRACE,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Everything that may lie beside a trace, all of it newer."""
    for name, data in BESIDE.items():
        (tmp_path / name).write_bytes(data)
    base = sqlite3.connect(tmp_path / "rows.json")
    base.execute("create table t (x)")
    base.close()
    (tmp_path / "folder.json").mkdir()
    return tmp_path


def _old(path: Path, data: bytes, at: int) -> Path:
    path.write_bytes(data)
    os.utime(path, (at, at))
    return path


def test_everything_else_is_passed_over(folder: Path) -> None:
    first = _old(folder / "z.json.gz", gzip.compress(TRACE), 1000)
    second = _old(folder / "k.json", b"\xef\xbb\xbf  " + TRACE, 2000)
    rows = _old(folder / "rows.trace", ROWS, 1500)
    assert traces_in(folder, every=False) == [second]
    assert traces_in(folder, every=True) == sorted([first, second, rows])
    assert read(folder, cache=False).reading.source == str(second)


@pytest.mark.parametrize("every", [True, False])
def test_a_folder_without_a_trace_says_what_it_holds(folder: Path, every: bool) -> None:
    with pytest.raises(InputError) as told:
        traces_in(folder, every=every)
    text = str(told.value)
    assert "\n" not in text
    for part in ("2 reports (a.report.json, packed.report.json.gz)", "2 saved trees", "1 baseline (", "1 saved plan ("):
        assert part in text
    assert "other files (" in text
    assert text.count("a.report.json") == 1


def test_an_empty_folder_says_how_to_get_a_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace in it; `lanewise run SCRIPT` records one"):
        traces_in(tmp_path, every=False)


def test_folders_in_it_count_only_where_itself_holds_none(folder: Path) -> None:
    for name in ("run1", "run2", ".hidden"):
        (folder / name).mkdir()
    one, two = _old(folder / "run1" / "w.json", TRACE, 2000), _old(folder / "run2" / "w.json", TRACE, 1000)
    _old(folder / ".hidden" / "w.json", TRACE, 3000)
    assert traces_in(folder, every=False) == [one]
    assert traces_in(folder, every=True) == [one, two]
    top = _old(folder / "top.json", TRACE, 10)
    assert traces_in(folder, every=True) == [top]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.report.json", "a report that lanewise wrote"),
        ("packed.report.json.gz", "a report that lanewise wrote"),
        ("plan.json", "a saved plan that lanewise wrote"),
        ("t.perfetto.json.gz", "a perfetto export that lanewise wrote"),
        ("saved.lwtree", "lanewise tree"),
    ],
)
def test_a_file_that_lanewise_wrote_is_named_when_it_is_given_itself(folder: Path, name: str, said: str) -> None:
    with pytest.raises(NotATraceError, match=said):
        read(folder / name, cache=False)
