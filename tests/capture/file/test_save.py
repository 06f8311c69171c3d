from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from lanewise.capture.file.event_counts import scan
from lanewise.capture.file.save import free_path, rank_suffix, rewrite_facts, write_trace
from lanewise.errors import LanewiseError
from lanewise.trace.metadata import KEY, Fault, Recorded, StepTimes, from_metadata, to_json


def exported(path: Path, *, rows: int = 3, pretty: bool = True) -> Path:
    """A trace as Kineto exports it, in the spelling of newer (one field per line) or older builds."""
    between = "\n    " if pretty else " "
    fields = ('"ph": "X",', '"cat": "user_annotation",', '"name": "ProfilerStep#%d",', '"ts": %d, "dur": 5')
    row = "  {\n    " + between.join(fields) + "\n  }"
    events = ",\n".join(row % (n, n) for n in range(rows))
    path.write_text(
        '\n {\n  "schemaVersion": 1,\n  "deviceProperties": [],\n    "host_name": "secret-machine",\n'
        f'  "displayTimeUnit": "ms",\n  "traceEvents": [\n{events}\n  ],\n  "traceName": "{path}" }}'
    )
    return path


def read(path: Path) -> dict[str, object]:
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("pretty", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 60_000])
def test_the_facts_go_in_and_private_ones_go_out(tmp_path: Path, rows: int, pretty: bool) -> None:
    raw, final = exported(tmp_path / "raw.json", rows=rows, pretty=pretty), tmp_path / "out.json.gz"
    write_trace(raw, final, {"schema": 1, "active": 3})
    trace = read(final)
    assert trace[KEY] == {"schema": 1, "active": 3}
    assert len(trace["traceEvents"]) == rows  # type: ignore[arg-type]
    assert trace["traceName"] == "out.json.gz"
    text = gzip.decompress(final.read_bytes()).decode()
    assert "secret-machine" not in text
    assert str(tmp_path) not in text
    assert raw.exists()


@pytest.mark.parametrize("rows", [1, 60_000])
def test_facts_that_come_later_take_the_place_of_the_first(tmp_path: Path, rows: int) -> None:
    raw, final = exported(tmp_path / "raw.json", rows=rows), tmp_path / "out.json.gz"
    first_part = write_trace(raw, final, {"schema": 1, "command": ['a "quoted" {word}']})
    before = read(final)
    for time in (7.5, 123456789.25):
        first_part = rewrite_facts(final, {"schema": 1, "unprofiled_step_us": time}, first_part)
        assert read(final) == before | {KEY: {"schema": 1, "unprofiled_step_us": time}}
    # One member: not every reader goes on after the first.
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    inflate.decompress(final.read_bytes())
    assert inflate.eof
    assert inflate.unused_data == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json.gz", "raw.json"]


def test_a_file_whose_facts_cannot_be_replaced_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    for first_part in (0, 3, 10_000):
        with pytest.raises(LanewiseError, match="cannot write"):
            rewrite_facts(path, {"schema": 1}, first_part)
    assert read(path) == {"traceEvents": []}
    assert [each.name for each in tmp_path.iterdir()] == ["out.json.gz"]


def test_an_unfinished_step_is_no_step(tmp_path: Path) -> None:
    raw, final = exported(tmp_path / "raw.json", rows=30_000), tmp_path / "out.json.gz"
    write_trace(raw, final, {}, unfinished=29_999)
    names = [row["name"] for row in read(final)["traceEvents"]]  # type: ignore[union-attr]
    assert names[-1] == "UnfinishedStep#29999"
    assert names.count("UnfinishedStep#29999") == 1
    assert names[2999] == "ProfilerStep#2999"


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    raw = exported(tmp_path / "raw.json")
    with pytest.raises(LanewiseError, match="cannot write"):
        write_trace(raw, Path("/dev/full/out.json.gz"), {})
    # A file that cannot grow: the write fails in the middle.
    script = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True  # cut short, it would stay beside the sources
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from lanewise.errors import LanewiseError
from lanewise.capture.file.save import write_trace
try:
    write_trace(Path(sys.argv[2]), Path(sys.argv[3]), {"a": list(range(2000))})
except LanewiseError as error:
    print("one line:", error)
"""
    final = tmp_path / "out.json.gz"
    words = [sys.executable, "-c", script, str(Path(__file__).parents[3] / "src"), str(raw), str(final)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "one line: cannot write" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["raw.json"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = free_path(tmp_path, "train", ".json.gz")
    first.touch()
    second = free_path(tmp_path, "train", ".json.gz")
    second.touch()
    assert [first.name, second.name, free_path(tmp_path, "train", ".json.gz").name] == [
        "train.json.gz",
        "train-2.json.gz",
        "train-3.json.gz",
    ]


def test_ranks_write_files_of_their_own() -> None:
    assert rank_suffix({"RANK": "3", "WORLD_SIZE": "8"}) == "-rank3"
    assert rank_suffix({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}) == "-rank1"
    assert rank_suffix({"RANK": "0", "WORLD_SIZE": "1"}) == ""
    assert rank_suffix({"RANK": "../../x", "WORLD_SIZE": "8"}) == ""
    assert rank_suffix({}) == ""


def test_steps_are_counted_in_both_spellings(tmp_path: Path) -> None:
    for pretty in (True, False):
        found = scan(exported(tmp_path / "raw.json", rows=20_000, pretty=pretty))
        assert found.steps == 20_000
        assert found.size == (tmp_path / "raw.json").stat().st_size


def test_the_reader_gets_what_the_recorder_wrote() -> None:
    times = StepTimes(median_us=55.5, p20_us=54.0, p80_us=57.0, samples=30, steps=30, method="host")
    recorded = Recorded(
        lanewise="1.2.3",
        unprofiled_step_us=55.5,
        unprofiled=times,
        profiled=times,
        distortion=1.9,
        distortion_low=1.8,
        distortion_high=2.0,
        step_source="optimizer",
        step_label="AdamW",
        steps_before=15,
        warmup=2,
        active=20,
        settled_after=9,
        stopped_by="settled",
        flags={"shapes": True, "stacks": False},
        costs_ms={"start": 12.5},
        command=["python", "train.py"],
        rank=3,
        world_size=8,
        environment={"versions": {"torch": "2.13.0"}},
        faults=[Fault(code="no-stacks", sentence="None came.")],
    )
    assert from_metadata({KEY: json.loads(json.dumps(to_json(recorded)))}) == recorded


@pytest.mark.parametrize(
    "hostile",
    [
        {"unprofiled_step_us": "fast"},
        {"unprofiled_step_us": -1, "active": "many", "distortion": float("nan")},
        {"faults": [None, 3, {"code": 5}], "flags": [1], "command": "rm -rf", "environment": 7},
        {"unprofiled": {"median_us": True}, "profiled": [], "costs_ms": {"start": "x"}},
        {"an unknown field": 1, "schema": 99},
    ],
)
def test_a_hostile_object_is_read_as_far_as_it_makes_sense(hostile: dict[str, object]) -> None:
    found = from_metadata({KEY: hostile})
    assert found is not None
    assert found.unprofiled_step_us is None
    assert found.faults == []
    assert found.command == []


def test_traces_of_other_tools_have_no_facts() -> None:
    assert from_metadata({}) is None
    assert from_metadata({KEY: "text"}) is None
