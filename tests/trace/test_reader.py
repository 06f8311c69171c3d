"""The fast reader against the plain one, on every real trace at hand and on small ones that state one thing."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lanewise.errors import NotATraceError
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.trace.schema import TABLES, Kind
from tests.support.corpus import CORPUS, DATA, fast_or_slow
from tests.trace.plain import plain_tables

REFUSED = ("benchmark_simple_add_et.json.gz", "memory_timeline.raw.gz", "truth.json.gz")
FILES = sorted(path for root in (DATA, CORPUS) if root.exists() for path in root.rglob("*.gz"))
JSON_LISTS = {"dims_text", "types_text", "strides_text", "concrete_text"}


def written_out(trace: Trace, table: str, column: str) -> list[Any]:
    """Cells of a column with names and texts filled in."""
    cells = trace[table][column].tolist()
    if column == "name":
        return [trace.names[cell] for cell in cells]
    if column.endswith("_text") or (table, column) == ("flows", "category"):
        texts = [trace.texts[cell] for cell in cells]
        return [json.loads(text) if text else None for text in texts] if column in JSON_LISTS else texts
    return cells


def assert_same_tables(trace: Trace, text: bytes) -> None:
    expected, base = plain_tables(text)
    for table, columns in TABLES.items():
        for column, spec in columns.items():
            assert trace[table][column].dtype == np.dtype(spec.dtype), (table, column)
            cells = written_out(trace, table, column)
            assert len(cells) == len(expected[table][column]), (table, column)
            differing = [
                (row, cell, wanted)
                for row, (cell, wanted) in enumerate(zip(cells, expected[table][column], strict=True))
                if cell != wanted and not (cell != cell and wanted != wanted)
            ]
            assert not differing, (table, column, len(differing), differing[:3])
    assert trace.base_ns == base
    assert trace.texts[0] == ""
    assert len(set(trace.names)) == len(trace.names)


@pytest.mark.parametrize("path", [fast_or_slow(path) for path in FILES])
def test_every_real_trace_reads_as_the_plain_reader_reads_it(path: Path) -> None:
    if path.name in REFUSED:
        with pytest.raises(NotATraceError):
            read(path, cache=False)
        return
    trace = read(path, cache=False)
    assert_same_tables(trace, gzip.decompress(path.read_bytes()))
    assert not trace.reading.lost
    assert not trace.reading.repaired
    assert not trace.reading.truncated
    for table, columns in TABLES.items():
        if "event" in columns and len(trace[table]["event"]):
            assert (np.diff(trace[table]["event"].astype(np.int64)) > 0).all(), table


def test_two_processes_give_what_one_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks.reader.generate import write

    from lanewise.trace.decode import worker

    path = tmp_path / "trace.json"
    write(path, 12_000, python=True)
    monkeypatch.setattr("lanewise.trace.reader.CHUNK_BYTES", 1 << 18)
    monkeypatch.setenv("LANEWISE_ONE_PROCESS", "1")
    one = read(path, cache=False)
    monkeypatch.delenv("LANEWISE_ONE_PROCESS")
    monkeypatch.setattr(worker, "_WORTH_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    sent: list[int] = []
    send = worker.Worker.send
    monkeypatch.setattr(
        worker.Worker, "send", lambda self, number, text: (sent.append(number), send(self, number, text))
    )
    two = read(path, cache=False)
    assert len(sent) >= 3
    assert_same_tables(one, path.read_bytes())
    assert one.names == two.names
    assert one.texts == two.texts
    assert one.reading.rows_by_phase == two.reading.rows_by_phase
    for table, columns in TABLES.items():
        for column in columns:
            np.testing.assert_array_equal(one[table][column], two[table][column], err_msg=f"{table}.{column}")


def test_a_dead_worker_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks.reader.generate import write

    from lanewise.trace.decode import worker

    path = tmp_path / "trace.json"
    write(path, 8_000)
    monkeypatch.setattr("lanewise.trace.reader.CHUNK_BYTES", 1 << 18)
    monkeypatch.setattr(worker, "_WORTH_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr("sys.executable", "/bin/false")
    trace = read(path, cache=False)
    assert_same_tables(trace, path.read_bytes())
    assert not trace.reading.lost


def test_a_system_that_starts_no_process_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lanewise.trace.decode import worker

    def refused(*_: object, **__: object) -> None:
        raise OSError("too many processes")

    monkeypatch.setattr(worker, "_WORTH_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(worker.subprocess, "Popen", refused)
    assert len(read_rows(tmp_path, x(), x(ts=11))) == 2


# -- small traces that state one thing ---------------------------------------------------------------------------------


def read_rows(tmp_path: Path, *rows: dict[str, Any], **top: Any) -> Trace:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": list(rows)}))
    return read(path, cache=False)


def x(name: str = "op", ts: Any = 10.0, dur: Any = 1.0, cat: str = "cpu_op", pid: Any = 1, tid: Any = 1, **args: Any):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def raw_trace(tmp_path: Path, events: str, head: str = "") -> Trace:
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, ' + head + '"traceEvents": [' + events + "]}")
    return read(path, cache=False)


@pytest.mark.parametrize(
    ("first", "second", "ns"),
    [
        ("4960310697390.316", "4960310697390.317", 1),
        ("4400000000001.001", "4400000000001.002", 1),  # rint(ts * 1000) would be off by one here
        ("4503599627370.495", "4503599627370.496", 1),
        ("8796093022207.998", "8796093022207.999", 1),
        ("1712195495519689.047", "1712195495519689.048", 1),  # not representable as a double
        ("1712195495519689", "1712195495519690", 1000),
        ("0.001", "0.002", 1),
    ],
)
def test_times_are_exact(tmp_path: Path, first: str, second: str, ns: int) -> None:
    row = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": %s, "dur": 1.0}'
    trace = raw_trace(tmp_path, f"{row % first}, {row % second}", '"baseTimeNanoseconds": 1000000000000000000, ')
    assert np.diff(trace.start).tolist() == [ns]
    whole, _, fraction = first.partition(".")
    assert trace.base_ns == 10**18 + int(whole) * 1000 + int(fraction or 0)


def test_all_thousandths_survive_the_double(tmp_path: Path) -> None:
    from lanewise.trace.decode.times import from_floats, from_text

    generator = np.random.default_rng(7)
    whole = generator.integers(0, 2**43 - 1, 20_000)
    whole[:5_000] = generator.integers(4_398_046_511_104, 4_503_599_627_370, 5_000)
    part = generator.integers(0, 1000, 20_000)
    texts = [f"{w}.{p:03}" for w, p in zip(whole.tolist(), part.tolist(), strict=True)]
    expected = whole * 1000 + part
    np.testing.assert_array_equal(from_floats([float(text) for text in texts]), expected)
    np.testing.assert_array_equal(from_text([text.encode() for text in texts]), expected)


def test_the_trace_starts_at_the_first_sane_slice(tmp_path: Path) -> None:
    far = 4960310697390.0
    trace = read_rows(
        tmp_path,
        x("zero", ts=0.0),
        x("first", ts=far),
        x("second", ts=far + 5),
        x("third", ts=far + 6),
        x("next year", ts=far + 3e13),
        {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": far - 1e9, "s": "g"},
    )
    assert trace.start.tolist() == [-1, 0, 5000, 6000, -1]
    assert trace.reading.repaired["start outside the recording"].count == 2
    assert trace["instants"]["time"].tolist() == [-(10**12)]
    assert trace["instants"]["lane"].tolist() == [-1]


def test_a_trace_may_start_at_zero(tmp_path: Path) -> None:
    trace = read_rows(tmp_path, x(ts=0), x(ts=5))
    assert trace.start.tolist() == [0, 5000]
    assert trace.base_ns == 0
    assert not trace.reading.repaired


def test_absent_fields_are_marked_and_counted(tmp_path: Path) -> None:
    trace = read_rows(
        tmp_path,
        {"ph": "X", "name": "no time", "pid": 1, "tid": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "no duration", "pid": 1, "tid": 1, "ts": 5},
        {"ph": "X", "cat": "cpu_op", "name": "negative", "pid": 1, "tid": 1, "ts": 6, "dur": -3},
        {"ph": "X", "cat": "cpu_op", "name": "endless", "pid": 1, "tid": 1, "ts": 7, "dur": 1e15},
        {"ph": "X", "ts": 8, "dur": 1},
    )
    assert trace.start.tolist() == [-1, 0, 1000, 2000, 3000]
    assert trace.duration.tolist() == [1000, 0, 0, 0, 1000]
    assert trace["events"]["correlation"].tolist() == [-1] * 5
    assert trace.kind.tolist() == [Kind.OTHER, Kind.OPERATOR, Kind.OPERATOR, Kind.OPERATOR, Kind.OTHER]
    counts = {reason: tally.count for reason, tally in trace.reading.repaired.items()}
    assert counts == {"slice without a start": 1, "slice without a duration": 1, "impossible duration": 2}


def test_begin_and_end_rows_become_slices(tmp_path: Path) -> None:
    def row(ph: str, name: str, ts: float, **more: Any) -> dict[str, Any]:
        return {"ph": ph, "name": name, "cat": "cpu_op", "pid": 1, "tid": 1, "ts": ts, **more}

    trace = read_rows(
        tmp_path,
        row("B", "outer", 1),
        row("b", "request", 1, id="0x1"),
        row("B", "inner", 2),
        row("E", "", 3),
        row("e", "request", 4, id="0x1"),
        row("E", "", 5),
        row("E", "", 6),
        row("B", "open", 7),
        row("E", "", 8, tid=2),
    )
    assert [trace.name_of(event) for event in range(4)] == ["outer", "request", "inner", "open"]
    assert trace.start.tolist() == [0, 0, 1000, 6000]
    assert trace.duration.tolist() == [4000, 3000, 1000, 0]
    assert trace.reading.lost["slice end without a begin"].count == 2
    assert trace.reading.repaired["slice begin without an end"].count == 1


def test_ids_of_any_spelling_name_one_lane(tmp_path: Path) -> None:
    trace = read_rows(
        tmp_path,
        x(pid=7, tid=7),
        x(pid=7.0, tid="7"),
        x(pid="7", tid=" 7 "),
        x(cat="kernel", pid=0, tid="stream 7"),
        x(cat="kernel", pid=0, tid=7),
        x(cat="python_function", pid=0, tid=7),
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7 "}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 7, "args": {"name": "thread 7 (python)"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 7, "args": {"name": "thread 7 (pt_main)"}},
    )
    assert trace.lane.tolist() == [0, 0, 0, 1, 1, 2]
    lanes = trace["lanes"]
    assert lanes["side"].tolist() == ["host", "device", "host"]
    assert lanes["process"].tolist() == ["7", "0", "0"]
    assert lanes["label"].tolist() == ["thread 7 (pt_main)", "stream 7", "thread 7"]


def test_flow_ends_find_their_lanes(tmp_path: Path) -> None:
    def flow(ph: str, pid: int, tid: int) -> dict[str, Any]:
        return {"ph": ph, "id": 5, "pid": pid, "tid": tid, "ts": 10, "cat": "ac2g", "name": "ac2g"}

    trace = read_rows(
        tmp_path,
        x(cat="cuda_runtime", pid=0, tid=0),
        x(cat="kernel", pid=0, tid=0),
        flow("s", 0, 0),
        flow("f", 0, 0),
        flow("f", 9, 9),
    )
    assert trace["flows"]["lane"].tolist() == [0, 1, -1]
    assert trace["flows"]["end"].tolist() == [0, 1, 1]
    assert [trace.texts[category] for category in trace["flows"]["category"]] == ["ac2g"] * 3


def test_memory_counters_and_labels(tmp_path: Path) -> None:
    trace = read_rows(
        tmp_path,
        x(),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 11, "s": "t",
         "args": {"Bytes": -512, "Addr": 2**63 + 5, "Total Allocated": 7, "Device Type": 1, "Device Id": 0}},
        {"ph": "C", "name": "power", "pid": 1, "tid": 1, "ts": 12,
         "args": {"watts": 350.5, "limit": "700", "odd": "?"}},
    )  # fmt: skip
    memory = trace["memory"]
    assert memory["bytes"].tolist() == [-512]
    assert memory["address"].tolist() == [2**63 + 5]
    assert memory["reserved"].tolist() == [-1]
    counters = trace["counters"]
    assert [trace.texts[key] for key in counters["key_text"]] == ["watts", "limit", "odd"]
    assert counters["value"].tolist()[:2] == [350.5, 700.0]
    assert math.isnan(counters["value"][2])


def test_unsigned_ids_wrap(tmp_path: Path) -> None:
    trace = read_rows(
        tmp_path,
        x(correlation=2**64 - 2, **{"External id": 2**63, "Sequence number": 2**80}),
        x(cat="gpu_memcpy", name="Memcpy HtoD (Pinned -> Device)", bytes="4096"),
    )
    assert trace["events"]["correlation"].tolist() == [-2, -1]
    assert trace["events"]["external_id"].tolist() == [-(2**63), -1]
    assert trace["events"]["sequence"].tolist() == [-1, -1]
    assert trace["copy_args"]["bytes"].tolist() == [4096]


def test_odd_types_are_converted_and_counted(tmp_path: Path) -> None:
    trace = read_rows(
        tmp_path,
        x("text", ts="12.5", dur="3", **{"External id": "77"}),
        x("bad", ts=13, dur="N/A", correlation=None, **{"External id": [1]}),
        {"ph": "X", "name": 5, "ts": 14, "dur": 1, "args": "none", "pid": None, "tid": True},
        "not a row",  # type: ignore[arg-type]
        x("fine", ts=15, **{"External id": 78.0}),
    )
    assert trace.start.tolist() == [0, 500, 1500, 2500]
    assert trace.duration.tolist() == [3000, 0, 1000, 1000]
    assert trace["events"]["external_id"].tolist() == [77, -1, -1, 78]
    assert trace.name_of(2) == "5"
    assert trace.reading.repaired["number written as text"].count == 3
    assert trace.reading.repaired["`dur` has no usable value"].sample == "'N/A'"
    assert trace.reading.repaired["`External id` has no usable value"].count == 1
    assert trace.reading.repaired["args are not an object"].count == 1
    assert trace.reading.lost["row is not an object"].count == 1


def test_unknown_phases_and_categories_are_counted(tmp_path: Path) -> None:
    trace = read_rows(
        tmp_path,
        x(cat="critical_path"),
        x(cat="critical_path"),
        {"ph": "Z", "name": "novel", "ts": 1},
        {"name": "no phase", "ts": 1},
    )
    assert trace.reading.unknown_categories == {"critical_path": 2}
    assert set(trace.reading.lost) == {'phase "Z" is not used', "row without a phase"}
    assert trace.reading.rows == 4


def test_a_list_is_a_trace_without_metadata(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(json.dumps([x(), x(ts=11)]))
    trace = read(path, cache=False)
    assert len(trace) == 2
    assert trace.metadata == {}


@pytest.mark.parametrize(
    "text", ['{"traceEvents": []}', "[]", ' \n{"traceEvents":null}', '{"traceEvents": [], "a": 1}']
)
def test_a_trace_may_be_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    trace = read(path, cache=False)
    assert len(trace) == 0
    assert not trace.reading.truncated
    assert trace.reading.generation == ""
    assert len(trace.lanes) == len(trace.events) == 0


def test_keys_after_the_events_are_metadata(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    devices = [{"id": 0, "name": "GPU"}, {"id": 1, "name": "GPU"}]
    path.write_text(json.dumps({"traceEvents": [x()], "deviceProperties": devices, "baseTimeNanoseconds": 5}))
    trace = read(path, cache=False)
    assert trace.metadata == {"deviceProperties": devices, "baseTimeNanoseconds": 5}
    assert trace.base_ns == 10_005


def test_metadata_is_bounded(tmp_path: Path) -> None:
    trace = read_rows(tmp_path, x(), small=1, large="m" * (2 << 20))
    assert trace.metadata["small"] == 1
    assert "large" not in trace.metadata
    assert trace.reading.lost["metadata too large to keep"].count == 1


def test_a_repeated_key_of_a_row_takes_its_last_value(tmp_path: Path) -> None:
    trace = raw_trace(tmp_path, '{"ph": "X", "name": "a", "ts": 1, "ts": 2, "dur": 1}, {"ph": "X", "ts": 5, "dur": 1}')
    assert trace.start.tolist() == [0, 3000]


def test_events_named_in_metadata_are_not_the_events(tmp_path: Path) -> None:
    head = '"note": {"traceEvents": [1, 2]}, "text": "\\"traceEvents\\": [", '
    trace = raw_trace(tmp_path, json.dumps(x()), head)
    assert len(trace) == 1
    assert trace.metadata["note"] == {"traceEvents": [1, 2]}


def test_a_second_list_of_events_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    one, two = json.dumps(x()), json.dumps(x(ts=20))
    path.write_text(f'{{"traceEvents": [{one}], "a": 1, "traceEvents": [{two}], "b": 2}}')
    trace = read(path, cache=False)
    assert trace.start.tolist() == [0, 10_000]
    assert trace.metadata == {"a": 1, "b": 2}
    assert trace.reading.repaired["key written twice"].count == 1


def test_objects_in_args_that_look_like_rows_do_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lanewise.trace.reader.CHUNK_BYTES", 2_000)
    nested = [{"name": f"n{i}", "ts": i} for i in range(40)]
    rows = [x(f"op{i}", ts=i, nested=nested) for i in range(30)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = read(path, cache=False)
    assert [trace.name_of(event) for event in range(len(trace))] == [f"op{i}" for i in range(30)]
    assert not trace.reading.lost


def test_progress_is_reported_in_stored_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [x(ts=i) for i in range(50_000)]}).encode()))
    seen: list[tuple[int, int | None]] = []
    read(path, cache=False, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen
    assert seen[-1] == (size, size)
    assert all(done <= size for done, _ in seen)
