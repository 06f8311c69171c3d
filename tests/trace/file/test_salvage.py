"""Damaged input: what is kept, what is counted, what is refused and how that reads."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanewise.errors import InputError, LanewiseError, NotATraceError, TooLargeError
from lanewise.trace.file import source, unwrap
from lanewise.trace.file.source import Source
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.trace.schema import TABLES
from tests.support.corpus import DATA

SMALL = gzip.decompress((DATA / "01_matmul_add_64_cold_eager.json.gz").read_bytes())
STACKS = gzip.decompress((DATA / "07_bad_host_stall.json.gz").read_bytes())


def read_bytes(data: bytes, name: str = "in memory", **options: Any) -> Trace:
    return read(Source(name, lambda: io.BytesIO(data), len(data)), cache=False, **options)


def events(*rows: str) -> bytes:
    return ('{"schemaVersion": 1, "traceEvents": [' + ",\n".join(rows) + ']\n, "traceName": "t"}').encode()


def row(name: str = "op", ts: int = 10, more: str = "") -> str:
    return f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": 1{more}}}'


def names_of(trace: Trace) -> list[str]:
    return [trace.name_of(event) for event in range(len(trace))]


def assert_consistent(trace: Trace) -> None:
    """What every trace holds, however damaged its file was."""
    for table, columns in TABLES.items():
        lengths = {len(trace[table][column]) for column in columns}
        assert len(lengths) == 1, table
        if "event" in columns and len(trace[table]["event"]):
            assert trace[table]["event"].max() < len(trace)
        for column in columns:
            cells = trace[table][column]
            if column.endswith("_text") and len(cells):
                assert cells.max() < len(trace.texts)
            if column == "name" and len(cells):
                assert cells.max() < len(trace.names)
    assert (trace.duration >= 0).all()
    assert (trace.start >= -1).all()
    if len(trace):
        assert trace.lane.min() >= 0
        assert trace.lane.max() < len(trace["lanes"]["side"])
    for text in (*trace.names, *trace.texts):
        text.encode()


# -- damage inside rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "name", "reason"),
    [
        (row("a\nb"), "a b", "control character in a text"),
        (row("a\x01b"), "a b", "control character in a text"),
        (row("a\tb"), "a b", "control character in a text"),
        (row(r"C:\path\gone"), r"C:\path\gone", "bad backslash"),
        (row(r"\q\u12"), r"\q\u12", "bad backslash"),
        (row('foo("bar")'), 'foo("bar")', "unescaped quote"),
        (row('one " quote'), 'one " quote', "unescaped quote"),
        (row("ends in \\"), "ends in \\", "unescaped quote"),
        (row(r"right \\ \n and wrong \x"), "right \\ \n and wrong \\x", "bad backslash"),
        (row(more=', "args": {"memory bandwidth (GB/s)": inf}'), "op", "value is no number"),
        (row(more=', "args": {"a": -nan, "c": "NaN stays"}'), "op", "value is no number"),
        (row(more=', "args": {"a": N/A}'), "op", "value is no number"),
        (row(more=', "args": {"b": -Infinity}'), "op", "value is no number"),
        (row(more=', "args": {"a": 1,}'), "op", "trailing comma"),
        (row(more=', "args": {"correlation": 1e999}'), "op", "value outside JSON"),
        (row(r"lone \ud800 surrogate"), "lone \ufffd surrogate", "unpaired surrogate"),
    ],
)
def test_a_damaged_row_is_mended_and_counted(damaged: str, name: str, reason: str) -> None:
    trace = read_bytes(events(row("before"), damaged, row("after", 20)))
    assert names_of(trace) == ["before", name, "after"]
    assert set(trace.reading.repaired) >= {reason}
    assert trace.reading.repaired[reason].count <= 2
    assert not trace.reading.lost
    assert not trace.reading.truncated
    assert trace.metadata["traceName"] == "t"


def test_invalid_utf8_becomes_the_replacement_character() -> None:
    trace = read_bytes(events(row("before"), row("caf?"), row("after")).replace(b"caf?", b"caf\xe9"))
    assert names_of(trace) == ["before", "caf\ufffd", "after"]
    assert trace.reading.repaired["invalid UTF-8"].count == 1


def test_not_a_number_in_a_column_is_missing() -> None:
    trace = read_bytes(events(row(more=', "args": {"External id": NaN, "correlation": 5}')))
    assert trace["events"]["external_id"].tolist() == [-1]
    assert trace["events"]["correlation"].tolist() == [5]
    assert trace.reading.repaired["value is no number"].count == 1


def test_a_hopeless_row_is_lost_alone() -> None:
    trace = read_bytes(events(row("before"), '{"ph": "X", "name": "a"b: [}}, ', row("after", 20)))
    assert names_of(trace) == ["before", "after"]
    (tally,) = trace.reading.lost.values()
    assert tally.count == 1
    assert '"a"b' in tally.sample


def test_garbage_between_rows_is_lost_alone() -> None:
    trace = read_bytes(events(row("before"), "garbage, 17", row("after", 20)))
    assert names_of(trace) == ["before", "after"]
    assert trace.reading.rows_lost == 1


def test_much_text_without_a_row_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.trace.reader._MOST_BARREN", 100_000)
    monkeypatch.setattr("lanewise.trace.reader.CHUNK_BYTES", 50_000)
    trace = read_bytes(events(row("before"), *['{"ph": "X" "name": "no comma"}'] * 60_000))
    assert names_of(trace) == ["before"]
    assert trace.reading.truncated
    assert any(reason.startswith("the rest of the file") for reason in trace.reading.lost)
    assert trace.reading.rows_lost < 20_000


def test_args_of_any_depth_are_survived() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    trace = read_bytes(events(row("before"), row("deep", 15, f', "args": {{"x": {deep}}}'), row("after", 20)))
    assert names_of(trace) == ["before", "deep", "after"]
    assert trace.reading.repaired["args are nested too deeply"].count == 1


def test_long_names_are_kept_whole() -> None:
    long = "kernel<" + "x" * 100_000 + ">"
    trace = read_bytes(events(row(long), row(long, 20)))
    assert names_of(trace) == [long, long]
    assert len(trace.names) == 1


def test_damage_in_one_chunk_leaves_the_others_to_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.trace.reader.CHUNK_BYTES", 4_000)
    rows = [row(f"op{i}", i) for i in range(500)]
    rows[250] = row("bad \\q escape", 250)
    rows[333] = '{"ph": "X", "name": "lost'
    trace = read_bytes(events(*rows))
    expected = [f"op{i}" for i in range(500)]
    expected[250] = r"bad \q escape"
    del expected[333]
    assert names_of(trace) == expected
    assert trace.reading.rows_lost == 1


def test_counters_and_labels_survive_damage_beside_them() -> None:
    label = '{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}}'
    counter = '{"ph": "C", "name": "power", "pid": 1, "tid": 1, "ts": 5, "args": {"watts": 7}}'
    trace = read_bytes(events(row("a\x00b"), label, counter))
    assert trace["lanes"]["label"].tolist() == ["main"]
    assert trace["counters"]["value"].tolist() == [7.0]


# -- cut off -----------------------------------------------------------------------------------------------------------


def cuts(data: bytes, step: int) -> list[int]:
    return [*range(0, len(data), step), len(data)]


def assert_cuts_are_survived(data: bytes, step: int) -> None:
    total = read_bytes(data).reading.rows
    rows = 0
    for cut in cuts(data, step):
        try:
            trace = read_bytes(data[:cut])
        except InputError:
            if cut >= 100:
                raise
            continue
        assert_consistent(trace)
        reading = trace.reading
        assert reading.rows >= rows, cut  # a longer part never gives less
        rows = reading.rows
        whole = data[:cut].count(b'"ph":')
        assert whole - 1 <= reading.rows <= whole, cut  # every complete row is kept
        assert reading.truncated == (cut < len(data.rstrip())), cut
    assert rows == total


def test_a_file_may_end_anywhere() -> None:
    assert_cuts_are_survived(SMALL, 97)


@pytest.mark.slow
def test_a_file_may_end_at_any_byte() -> None:
    assert_cuts_are_survived(SMALL[:3000] + SMALL[-2000:], 1)


def test_a_list_needs_no_closing_bracket() -> None:
    trace = read_bytes(f"[{row()},\n{row('b', 20)},\n".encode())
    assert names_of(trace) == ["op", "b"]
    assert not trace.reading.truncated
    assert trace.reading.repaired["list without its closing bracket"].count == 1


def test_compressed_data_may_end_anywhere() -> None:
    packed = gzip.compress(SMALL)
    rows = 0
    for cut in range(20, len(packed), 97):
        try:
            trace = read_bytes(packed[:cut])
        except InputError:
            continue
        assert trace.reading.truncated
        assert "compressed data that is cut off" in trace.reading.lost
        assert trace.reading.rows >= rows
        rows = trace.reading.rows
    assert rows > 90


def test_a_damaged_tail_gives_what_comes_before_it() -> None:
    compressor = zlib.compressobj(wbits=31)
    packed = compressor.compress(STACKS[:60_000]) + compressor.flush(zlib.Z_FULL_FLUSH)
    trace = read_bytes(packed + b"\x07no block starts like this")
    assert trace.reading.truncated
    assert trace.reading.lost["compressed data that is damaged"].count == 1
    assert trace.reading.rows > 150


def test_a_wrong_checksum_loses_nothing() -> None:
    packed = bytearray(gzip.compress(SMALL))
    packed[-6] ^= 0xFF
    trace = read_bytes(bytes(packed))
    assert trace.reading.rows == 105
    assert not trace.reading.truncated
    assert trace.reading.repaired["compressed data with a wrong checksum"].count == 1


@pytest.mark.parametrize("tail", [b"", b"\0" * 100])
def test_several_gzip_members_are_one_text(tail: bytes) -> None:
    half = len(SMALL) // 2
    trace = read_bytes(gzip.compress(SMALL[:half]) + gzip.compress(SMALL[half:]) + tail)
    assert trace.reading.rows == 105
    assert not trace.reading.lost
    assert not trace.reading.repaired


def test_bytes_after_the_trace_are_reported() -> None:
    assert "text after the end of the trace" in read_bytes(SMALL + b"\ngarbage").reading.repaired
    packed = read_bytes(gzip.compress(SMALL) + b"garbage")
    assert "bytes after the end of the compressed data" in packed.reading.repaired
    assert packed.reading.rows == 105


def test_a_byte_order_mark_and_any_name_are_fine() -> None:
    assert read_bytes(b"\xef\xbb\xbf" + SMALL, "trace.png").reading.rows == 105
    assert read_bytes(gzip.compress(SMALL), "trace.json").reading.compressed


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "name", "says"),
    [
        (b"", "x.json", "empty"),
        (b" \n\t ", "x.json", "white space"),
        (b"hello there", "x.json", "plain text"),
        (b"name,ts,dur\n1,2,3", "x.csv", "plain text"),
        (b"<!DOCTYPE html><html>", "x.html", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "x.json", "Git LFS"),
        (pickle.dumps({"segments": []}), "snapshot.pickle", "memory snapshot"),
        (b"SQLite format 3\x00" + b"\0" * 90, "report.sqlite", "SQLite"),
        (b"\x0a\x12\x00\x01" * 20, "host.xplane.pb", "XPlane"),
        (b"\x00\x01\x02" * 40, "report.nsys-rep", "Nsight Systems"),
        (b"\x00\x01\x02" * 40, "report.ncu-rep", "Nsight Compute"),
        (b"\x00\x01\x02" * 40, "mystery.bin", "binary"),
        (b"PK\x03\x04" + b"\0" * 40, "x.zip", "zip"),
        (b"\x28\xb5\x2f\xfd" + b"\0" * 40, "x.json.zst", "zstd"),
        (gzip.compress(gzip.compress(SMALL)), "x.json.gz.gz", "compressed twice"),
        ("{}".encode("utf-16"), "x.json", "UTF-16"),
        (b'{"schema": "1.1", "pid": 1, "nodes": [', "et.json", "execution trace"),
        (b'{"rocprofiler-sdk-tool": [', "x.json", "rocprofv3"),
        (b'{"segments": [], "device_traces": []}', "x.json", "memory snapshot"),
        (b'{"nodes": [], "startTime": 1, "samples": []}', "x.cpuprofile", "execution trace|CPU profile"),
        (b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}', "x.json", "speedscope"),
        (b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "m.raw", "memory timeline"),
        (b"[1, 2, 3]", "x.json", "something else"),
        (b'[{"image_id": 1, "bbox": [1]}]', "x.json", "not a list of trace events"),
        (b'{"a": 1, "b": 2}', "x.json", "its keys are a, b"),
        (b'{"traceEvents": {"a": 1}}', "x.json", "not a list"),
        (b'{"traceEvents": "none"}', "x.json", "not a list"),
        (b"{}", "x.json", "without `traceEvents`"),
        (b'{"sche', "x.json", "cut off"),
    ],
    # Not the data: a compressed file holds the time, and every process must collect the same tests.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_files_are_refused_by_name(data: bytes, name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_bytes(data, name)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(name)


def test_a_kineto_file_without_events_is_an_empty_trace() -> None:
    trace = read_bytes(b'{"schemaVersion": 1, "deviceProperties": [{"id": 0}], "displayTimeUnit": "ms"}')
    assert len(trace) == 0
    assert trace.metadata["deviceProperties"] == [{"id": 0}]
    assert "the list of events is missing" in trace.reading.lost


def test_a_compression_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwrap, "_RATIO_CHECKED_ABOVE", 4 << 20)
    bomb = gzip.compress(b'{"traceEvents": [' + b" " * (32 << 20))
    with pytest.raises(TooLargeError, match="500 times"):
        read_bytes(bomb)


def test_the_bound_on_the_text_is_the_callers() -> None:
    with pytest.raises(TooLargeError, match="10,000 bytes"):
        read_bytes(SMALL, max_bytes=10_000)


def test_white_space_is_not_searched_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotATraceError, match="white space"):
        read_bytes(b" " * (80 << 20))


def test_a_failing_disk_gives_what_came_before() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 10_000:
                raise OSError("input/output error")
            return super().read(10_000)

    trace = read(Source("disk", lambda: Failing(SMALL)), cache=False)
    assert trace.reading.truncated
    assert trace.reading.lost["the storage failed while reading"].count >= 1
    assert trace.reading.rows > 20


# -- anything at all ---------------------------------------------------------------------------------------------------


def survives(data: bytes) -> None:
    """Reads, or refuses with an error of ours; the result holds together."""
    try:
        trace = read_bytes(data)
    except LanewiseError as error:
        if "\n" in str(error):
            pytest.fail("a message of several lines")
        return
    assert_consistent(trace)
    assert trace.reading.rows >= len(trace)


FAST = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FAST
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes(flips: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for at, value in flips:
        data[at] = value
    survives(bytes(data))


@FAST
@given(st.integers(0, len(SMALL)), st.integers(0, 400), st.binary(max_size=40))
def test_cut_out_and_pasted_in(at: int, length: int, pasted: bytes) -> None:
    survives(SMALL[:at] + pasted + SMALL[at + length :])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_flipped_bytes_of_compressed_data(data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(SMALL))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    survives(bytes(packed))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["N/A", "12.5", "0x1f", "stream 7", "X", ""])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
ARGS = st.sampled_from(
    [
        "External id",
        "correlation",
        "grid",
        "block",
        "Input Dims",
        "bytes",
        "Bytes",
        "Addr",
        "Call stack",
        "cbid",
        "name",
        "Python parent id",
        "kernel_hash",
        "Collective name",
        "Process Group Ranks",
        "Is asynchronized op",
        "kind",
    ]
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from([*"XsfMiBEbeCtn"]) | JSON,
        "cat": st.sampled_from(["cpu_op", "kernel", "gpu_memcpy", "Operator", "cuda_sync", "mtia_ccp_events"]) | JSON,
        "name": st.sampled_from(["thread_name", "[memory]", "Memcpy HtoD (Pageable -> Device)"]) | JSON,
        "ts": st.floats(0, 1e13) | JSON,
        "dur": st.floats(-5, 1e6) | JSON,
        "pid": st.integers(0, 3) | JSON,
        "tid": st.integers(0, 3) | JSON,
        "id": st.integers(0, 5) | JSON,
        "args": st.dictionaries(ARGS, JSON, max_size=5) | JSON,
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS | JSON, max_size=8), st.dictionaries(st.text(max_size=6), JSON, max_size=2))
def test_rows_of_any_types(rows: list[Any], metadata: dict[str, Any]) -> None:
    survives(json.dumps({**metadata, "schemaVersion": 1, "traceEvents": rows}).encode())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_heavy_damage(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        data = bytearray(STACKS if seed % 2 else SMALL)
        for _ in range(rng.choice((1, 5, 50, 500))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        survives(bytes(data))


# -- where inputs come from --------------------------------------------------------------------------------------------


def test_a_directory_gives_its_newest_trace_or_all(tmp_path: Path) -> None:
    import os

    for age, name in enumerate(["b.pt.trace.json", "a.json.gz", "notes.txt"]):
        (tmp_path / name).write_bytes(SMALL)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert [found.path for found in source.resolve(tmp_path)] == [tmp_path / "b.pt.trace.json"]
    everything = [found.path for found in source.resolve(tmp_path, every=True)]
    assert everything == [tmp_path / "a.json.gz", tmp_path / "b.pt.trace.json"]
    assert read(tmp_path, cache=False).reading.source.endswith("b.pt.trace.json")


def test_a_log_directory_may_have_a_folder_per_run(tmp_path: Path) -> None:
    (tmp_path / "run1").mkdir()
    (tmp_path / "run1" / "w.pt.trace.json").write_bytes(SMALL)
    assert [found.path for found in source.resolve(tmp_path)] == [tmp_path / "run1" / "w.pt.trace.json"]


@pytest.mark.parametrize(("name", "says"), [("missing.json", "no such file"), ("", "empty path")])
def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(LanewiseError, match=says):
        source.resolve(str(tmp_path / name) if name else "")


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace in it"):
        source.resolve(tmp_path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        buffer = io.BytesIO(gzip.compress(SMALL))

    monkeypatch.setattr(sys, "stdin", Standard)
    trace = read("-", cache=True)
    assert trace.reading.source == "standard input"
    assert trace.reading.rows == 105


def test_remote_files_come_through_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/trace.json.gz", "wb") as file:
        file.write(gzip.compress(SMALL))
    trace = read("memory://bucket/trace.json.gz")
    assert trace.reading.rows == 105
    with pytest.raises(InputError, match="no such file"):
        read("memory://bucket/other.json")
    with pytest.raises(LanewiseError):
        read("nonsense://bucket/other.json")
