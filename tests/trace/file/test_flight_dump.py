"""Dumps of torch's flight recorder: read as JSON and as pickles, of which nothing is ever run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from lanewise.errors import InputError
from lanewise.trace.file.flight_dump import is_flight_dump, read_flight_dump
from tests.support.flight_dumps import dump, entry


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_both_forms_say_the_same(form: str, tmp_path: Path) -> None:
    data = dump([entry(1), entry(2, state="scheduled")], [0, 1, 2])
    path = tmp_path / ("comm_lib_trace_rank_2" if form == "pickle" else "fr_rank2.json")
    path.write_bytes(pickle.dumps(data, protocol=2) if form == "pickle" else json.dumps(data).encode())
    assert is_flight_dump(path)
    found = read_flight_dump(path)
    assert (found.rank, found.groups) == (2, {"0": [0, 1, 2]})
    assert [(one.sequence, one.operation, one.over) for one in found.entries] == [
        (1, "nccl:all_reduce", True),
        (2, "nccl:all_reduce", False),
    ]
    assert found.entries[0].place == "train_step (train.py:12)"


class Runs:
    """A pickle that makes a folder when it is read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_something_is_refused_and_runs_nothing(protocol: int, tmp_path: Path) -> None:
    data = dump([entry(1)], [0]) | {"more": Runs(str(tmp_path / "made"))}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(data, protocol=protocol))
    with pytest.raises(InputError):
        read_flight_dump(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "module", ["builtins", "os", "torch._utils", "torch.jit._pickle", "collections", "functools", "lanewise.search"]
)
def test_no_name_is_imported(module: str, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(b"\x80\x02c" + module.encode() + b"\nsystem\nU\x02ls\x85R.")
    with pytest.raises(InputError, match="holds more than plain values"):
        read_flight_dump(path)


def test_lists_of_torch_are_lists(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    build = b"ctorch.jit._pickle\nbuild_intlist\n](K\x01K\x02e\x85R"
    path.write_bytes(b"\x80\x02}(X\x07\x00\x00\x00entries]X\x01\x00\x00\x00a" + build + b"u.")
    assert read_flight_dump(path).entries == []


NONE = [
    b"",
    b"\x80",
    b"\x80\x02",
    b"\x80\x02]q\x00.",
    b"{",
    b"[1]",
    b'{"entries": 7}',
    b"\x80\x02h\x00.",
    b"\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
]


@pytest.mark.parametrize("body", NONE)
def test_what_is_none_is_one_line(body: bytes, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(body)
    with pytest.raises(InputError) as error:
        read_flight_dump(path)
    assert "\n" not in str(error.value)


def test_columns_of_a_wrong_type_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rank_1.json"
    odd = {"process_group": 7, "collective_seq_id": "9", "frames": [3, {"filename": 4}], "is_p2p": "yes"}
    path.write_text(json.dumps({"entries": [odd, 5], "pg_config": {"0": 3, "1": {"ranks": "no list"}}}))
    (one,) = read_flight_dump(path).entries
    assert (one.sequence, one.transfer, one.place) == (-1, False, "")


def test_gloo_has_no_times_and_another_name_for_the_group_of_all(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.json"
    ended = entry(3, state="scheduled") | {"retired": True, "time_discovered_started_ns": None}
    data = dump([ended], [0, 1])
    data["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    path.write_text(json.dumps(data))
    found = read_flight_dump(path)
    assert found.entries[0].over
    assert found.groups == {"0": [0, 1]}


def test_traces_and_reports_are_none(tmp_path: Path) -> None:
    for name, body in (("a.json", '{"traceEvents": [], "pg_config": 1}'), ("b.json", '{"schema": 1}'), ("c", "text")):
        (tmp_path / name).write_text(body)
        assert not is_flight_dump(tmp_path / name)
