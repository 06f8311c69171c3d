"""Memory snapshots are read without executing them."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from lanewise.errors import InputError, NotATraceError, TooLargeError
from lanewise.measure.memory.snapshot import read_snapshot

MB = 1 << 20


def block(size: int, state: str, *frames: str) -> dict[str, Any]:
    return {
        "size": size,
        "requested_size": size - 1,
        "state": state,
        "frames": [{"filename": "model.py", "line": at, "name": name} for at, name in enumerate(frames, 1)],
    }


def snapshot() -> dict[str, Any]:
    return {
        "segments": [
            {
                "device": 0,
                "address": 1,
                "total_size": 20 * MB,
                "stream": 0,
                "blocks": [
                    block(6 * MB, "active_allocated", "forward", "main"),
                    block(4 * MB, "inactive"),
                    block(8 * MB, "active_allocated", "backward"),
                    block(2 * MB, "active_pending_free"),
                ],
            },
            {"device": 0, "address": 2, "total_size": 10 * MB, "stream": 0, "blocks": [block(10 * MB, "inactive")]},
            {
                "device": 0,
                "address": 3,
                "total_size": 6 * MB,
                "stream": 0,
                "blocks": [block(6 * MB, "active_allocated", "forward", "main")],
            },
        ],
        "device_traces": [[{"action": "alloc"}, {"action": "alloc"}, {"action": "free_completed"}]],
    }


def write(folder: Path, content: bytes) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_sums_blocks_by_state_and_owner(tmp_path: Path, protocol: int) -> None:
    found = read_snapshot(write(tmp_path, pickle.dumps(snapshot(), protocol)))
    assert (found.reserved, found.allocated, found.waiting, found.free) == (36 * MB, 20 * MB, 2 * MB, 14 * MB)
    assert (found.largest_free, found.split_free, found.segments) == (10 * MB, 4 * MB, 3)
    assert found.fragmentation == pytest.approx(4 / 14)
    assert [(holder.bytes, holder.blocks) for holder in found.holders] == [(12 * MB, 2), (8 * MB, 1)]
    assert found.holders[0].frames == ("model.py:1 forward", "model.py:2 main")
    assert found.events == {"alloc": 2, "free_completed": 1}


def test_stacks_of_old_snapshots_are_in_the_history(tmp_path: Path) -> None:
    old = snapshot()
    first = old["segments"][0]["blocks"][0]
    first["history"] = [{"addr": 1, "frames": first.pop("frames")}]
    found = read_snapshot(write(tmp_path, pickle.dumps(old)))
    assert found.holders[0].blocks == 2


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = snapshot() | {"extra": Attack()}
    with pytest.raises(NotATraceError, match=r"system, which is not loaded"):
        read_snapshot(write(tmp_path, pickle.dumps(content)))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps([1, 2]),
        pickle.dumps({"segments": 3}),
        b"not a pickle",
        pickle.dumps(snapshot())[:-20],
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        b"\x80\x02U\x03abcQ.",
    ],
)
def test_anything_else_is_refused_by_what_it_is(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(NotATraceError, match="not a memory snapshot"):
        read_snapshot(write(tmp_path, content))


def test_odd_contents_are_left_out_not_believed(tmp_path: Path) -> None:
    odd = {
        "segments": [5, {"total_size": -3, "blocks": "x"}, {"total_size": True, "blocks": [{"size": "big"}, None]}],
        "device_traces": {"a": 1},
    }
    found = read_snapshot(write(tmp_path, pickle.dumps(odd)))
    assert (found.reserved, found.allocated, found.free) == (0, 0, 0)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the bound needs Linux")
def test_a_few_bytes_cannot_ask_for_all_memory(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(TooLargeError):
        read_snapshot(write(tmp_path, b"\x80\x04K\x01r\xff\xff\xff\x7f."))
    assert time.monotonic() - begun < 5


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        read_snapshot(write(tmp_path, b""))
