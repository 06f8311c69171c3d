"""Dumps of a flight recorder as torch writes them (`torch/csrc/distributed/c10d/FlightRecorder.hpp`)."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["dump", "entry", "write_dumps"]


def entry(
    number: int,
    operation: str = "nccl:all_reduce",
    *,
    state: str = "completed",
    shape: Sequence[int] = (64, 64),
    group: str = "0",
    about: str = "default_pg",
    transfer: bool = False,
    line: int = 12,
) -> dict[str, Any]:
    """One entry."""
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/site-packages/torch/distributed/distributed_c10d.py", "line": 3245},
            {"name": "train_step", "filename": "/home/me/train.py", "line": line},
            {"name": "<module>", "filename": "/home/me/train.py", "line": 40},
        ],
        "record_id": number,
        "pg_id": 0,
        "process_group": (group, about),
        "collective_seq_id": 0 if transfer else number,
        "p2p_seq_id": number if transfer else 0,
        "op_id": number,
        "profiling_name": operation,
        "time_created_ns": 1_700_000_000_000_000_000 + number * 1_000_000,
        "input_sizes": [list(shape)],
        "input_dtypes": ["Float"],
        "output_sizes": [list(shape)],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": 1 if state != "scheduled" else None,
        "time_discovered_completed_ns": 2 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": transfer,
    }


def dump(entries: Sequence[Mapping[str, Any]], members: Sequence[int], **groups: Sequence[int]) -> dict[str, Any]:
    """What one rank writes; further `groups` by name."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(members))}}
    for name, ranks in groups.items():
        config[name] = {"name": name, "desc": f"mesh_{name}", "ranks": str(list(ranks))}
    return {
        "version": "2.10",
        "comm_lib_version": "2.28.9",
        "pg_config": config,
        "pg_status": {},
        "entries": list(entries),
    }


def write_dumps(folder: Path, by_rank: Mapping[int, Mapping[str, Any]]) -> None:
    """A file for each rank, as a timeout writes them."""
    for rank, data in by_rank.items():
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickle.dumps(dict(data), protocol=2))
