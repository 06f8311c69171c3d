"""Dumps of torch's flight recorder: the last collectives that a rank has called, written when a job hangs.

As torch writes them they are pickles (`TORCH_FR_DUMP_TEMP_FILE`), and from `torch._C._distributed_c10d._dump_fr_trace_json`
they are JSON. A pickle can run any program, and these files come from elsewhere: only plain values are taken out of it, and
nothing is ever imported or called.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lanewise.errors import InputError

__all__ = ["FlightDump", "FlightEntry", "is_flight_dump", "read_flight_dump"]

_LARGEST = 256 << 20
_HEAD = 1 << 16
_MOST_ENTRIES = 200_000
_PICKLE = b"\x80"
# What the head of a dump holds, in either form: names of its columns.
_COLUMNS = (b"collective_seq_id", b"comm_lib_version", b"nccl_version", b"pg_config")
_NUMBER = re.compile(r"rank[_-]?(\d+)|(\d+)(?:\.\w+)*$")
_LISTS = {"build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"}
_OF_TORCH = ("/torch/", "\\torch\\", "<frozen")


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """One collective or transfer as a rank called it.

    Attributes:
        group: name of the process group. about: what the program calls it.
        sequence: its number among the collectives of the group, or among the transfers if it is one.
        transfer: whether it is between two ranks. operation: its name. shapes: of the inputs, as text.
        state: `scheduled`, `started` or `completed`. over: whether it came to an end, in an error or not.
        created_ns: when it was called, wall clock.
        place: function and line of the program that called it, "" if unknown.
    """

    group: str
    about: str
    sequence: int
    transfer: bool
    operation: str
    shapes: str
    state: str
    over: bool
    created_ns: int
    place: str


@dataclass(frozen=True)
class FlightDump:
    """The dump of one rank. `groups` gives the members of each process group by its name."""

    rank: int
    file: str
    entries: list[FlightEntry]
    groups: dict[str, list[int]]


def is_flight_dump(path: Path) -> bool:
    """Whether a file is one, by its beginning."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    begins = head.startswith(_PICKLE) or head.lstrip()[:1] == b"{"
    return begins and b"traceEvents" not in head and any(column in head for column in _COLUMNS)


def read_flight_dump(path: Path) -> FlightDump:
    """Read a dump. InputError where it is none, or holds more than plain values."""
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path}: larger than any dump of a flight recorder")
        with path.open("rb") as file:
            pickled = file.read(1) == _PICKLE
            file.seek(0)
            data = _Plain(file).load() if pickled else json.load(file)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # a pickle that is cut off or made up raises anything
        raise InputError(f"{path}: no dump of a flight recorder ({type(error).__name__})") from None
    if not isinstance(data, Mapping) or not isinstance(data.get("entries", []), list):
        raise InputError(f"{path}: no dump of a flight recorder")
    return FlightDump(
        rank=_rank(path),
        file=path.name,
        entries=[_entry(one) for one in data.get("entries", [])[-_MOST_ENTRIES:] if isinstance(one, Mapping)],
        groups=_groups(data.get("pg_config")),
    )


class _Plain(pickle.Unpickler):
    """Takes numbers, texts, lists and dictionaries out of a pickle, and refuses everything else."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="utf-8", errors="replace")

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == "torch.jit._pickle" and global_name in _LISTS:
            return list  # how torch writes lists of one type
        raise InputError("holds more than plain values, which no flight recorder writes")

    def persistent_load(self, pid: Any) -> Any:
        raise InputError("holds more than plain values, which no flight recorder writes")


def _rank(path: Path) -> int:
    found = _NUMBER.search(path.name)
    return int(found[1] or found[2]) if found else -1


def _entry(raw: Mapping[str, Any]) -> FlightEntry:
    group = raw.get("process_group")
    name, about = (*map(str, group), "", "")[:2] if isinstance(group, list | tuple) else (str(raw.get("pg_id", "")), "")
    transfer = raw.get("is_p2p") is True
    return FlightEntry(
        group=name[:200],
        about=about[:200],
        sequence=_whole(raw.get("p2p_seq_id" if transfer else "collective_seq_id")),
        transfer=transfer,
        operation=str(raw.get("profiling_name", ""))[:200],
        shapes=str(raw.get("input_sizes", ""))[:200],
        state=str(raw.get("state", ""))[:20],
        over=_is_over(raw),
        created_ns=_whole(raw.get("time_created_ns")),
        place=_place(raw.get("frames")),
    )


def _is_over(raw: Mapping[str, Any]) -> bool:
    """Gloo's collectives are never seen to begin or end; what counts is that nobody waits for them any more."""
    if raw.get("state") == "completed":
        return True
    seen = raw.get("time_discovered_started_ns") or raw.get("time_discovered_completed_ns")
    return raw.get("retired") is True and not seen


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _place(frames: Any) -> str:
    """The innermost frame that is not torch's."""
    for frame in frames if isinstance(frames, list) else []:
        if not isinstance(frame, Mapping):
            continue
        file = str(frame.get("filename", ""))
        if file.endswith(".py") and not any(part in file for part in _OF_TORCH):
            return f"{str(frame.get('name', ''))[:100]} ({file.rsplit('/', 1)[-1][:100]}:{frame.get('line', '?')})"
    return ""


def _groups(config: Any) -> dict[str, list[int]]:
    """Members by the name of the group: of a JSON list as text, or a list."""
    found: dict[str, list[int]] = {}
    for key, one in config.items() if isinstance(config, Mapping) else []:
        if not isinstance(one, Mapping):
            continue
        ranks = one.get("ranks", [])
        if isinstance(ranks, str):
            ranks = [int(number) for number in re.findall(r"\d+", ranks)]
        members = [rank for rank in ranks if isinstance(rank, int)] if isinstance(ranks, list) else []
        found[str(one.get("name", key))[:200]] = members
    if "" in found:  # how gloo calls the group of all
        found.setdefault("0", found.pop(""))
    return found
