"""Rows of one chunk -> a batch of columns.

A batch is self-contained: names, texts and places (category, process, thread) are numbers of the decoder that made it,
and the batch carries the entries that are new since that decoder's last batch. Times are absolute nanoseconds. So a
batch can come from another process, and `assemble.py` can put batches together in file order whoever made them.

Columns are pulled out of the structs by list comprehensions, one per column: at 14 ns a value no other way of leaving
Python objects behind comes near.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import chain, compress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lanewise.trace.decode.interning import Interner
from lanewise.trace.decode.rows import EMPTY_ARGS, Args, CommonRow, Row, WideRow
from lanewise.trace.decode.times import MISSING, from_floats, from_text
from lanewise.trace.dialects import annotation_in_disguise, classify, copy_of, mtia_device_kind
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import Kind

__all__ = ["Batch", "Columns", "Decoder", "Mark", "Place"]

Columns = dict[str, np.ndarray]
LooseArgs = Callable[[list[int]], list[dict[str, Any]]]


class Place(NamedTuple):
    """Where a row says that it belongs. Process and thread are as the file has them: number, text or float."""

    category: str
    process: int | str | float
    thread: int | str | float


class Mark(NamedTuple):
    """One end of a slice that is written as two rows. `event` is the row of the batch's events, -1 for an end."""

    phase: str
    place: int
    time: int
    event: int
    key: str


class Batch(msgspec.Struct):
    """Columns of one chunk. `tables` follow `schema.TABLES` with `place` for `lane`; `launches` lend their grids to
    kernels that have none (AMD)."""

    tables: dict[str, Columns]
    names: list[str]
    texts: list[str]
    places: list[Place]
    marks: list[Mark]
    labels: list[tuple[Place, str]]
    phases: dict[str, int]
    reading: Reading


_BEGIN = frozenset("XBbS")
_END = frozenset("EeF")
_FLOW = frozenset("sft")
_INSTANT = frozenset("iIRn")
_HOST_TEXTS = (Kind.OPERATOR, Kind.ANNOTATION, Kind.OTHER)
_TOO_LONG = 7 * 86_400 * 10**9  # ns; no profiler records for a week


class Decoder:
    """Makes batches; keeps the numbers of names, texts and places from one batch to the next."""

    def __init__(self) -> None:
        self._names: Interner[str] = Interner()
        self._texts: Interner[str] = Interner()
        self._places: Interner[Any] = Interner()
        self._shapes: Interner[bytes] = Interner()
        self._kind_of_place: list[int] = []
        self._special_places: dict[int, str] = {}
        self._shape_texts = np.zeros((4, 1024), dtype=np.uint32)
        self._texts.number("")
        self._shapes.number(b"\0\0\0")
        self._shapes.take_new()

    def batch(self, rows: Sequence[Row], reading: Reading, loose: LooseArgs) -> Batch:
        """Columns of rows. `loose(numbers)` gives the args of the rows with these numbers as dictionaries."""
        token = _READING.set(reading)
        try:
            return self._batch(rows, reading, loose)
        finally:
            _READING.reset(token)

    def _batch(self, rows: Sequence[Row], reading: Reading, loose: LooseArgs) -> Batch:
        phase_of_row = [row.ph for row in rows]
        phases = {phase: count for phase in "Xsf" if (count := phase_of_row.count(phase))}
        if sum(phases.values()) < len(rows):
            phases = dict(Counter(phase_of_row))
        slices = [row for row, phase in zip(rows, phase_of_row, strict=True) if phase in _BEGIN]
        flows = [row for row, phase in zip(rows, phase_of_row, strict=True) if phase in _FLOW]

        tables = self._slices(slices, reading)
        if flows:
            tables["flows"] = self._flows(flows)
        marks = self._begins(slices, tables["events"]) if len(slices) > phases.get("X", 0) else []
        labels: list[tuple[Place, str]] = []
        if len(slices) + len(flows) < len(rows):
            rest = [(number, row) for number, row in enumerate(rows) if row.ph not in _BEGIN and row.ph not in _FLOW]
            labels = self._rest(rest, tables, marks, reading, loose)
        return Batch(
            tables=tables,
            names=self._names.take_new(),
            texts=self._texts.take_new(),
            places=[Place(*place) for place in self._places.take_new()],
            marks=marks,
            labels=labels,
            phases=phases,
            reading=reading,
        )

    # -- slices --------------------------------------------------------------------------------------------------

    def _slices(self, rows: list[Row], reading: Reading) -> dict[str, Columns]:
        args = [row.args or EMPTY_ARGS for row in rows]
        common = bool(rows) and isinstance(rows[0], CommonRow)
        place = _numbers(self._place_numbers(rows), np.int32)
        name = _numbers(self._names.numbers([row.name for row in rows]), np.uint32)
        kind = self._kinds(place, name, rows)
        start = _times(rows)
        _count(reading, "slice without a start", start == MISSING, rows)
        external = _integers([arg.external_id for arg in args])
        old = _integers([arg.external_id_2021 for arg in args]) if self._special_places else external
        events = {
            "place": place,
            "kind": kind,
            "name": name,
            "start": start,
            "duration": _durations(rows, reading),
            "correlation": _integers([arg.correlation for arg in args]),
            "external_id": np.where(external == -1, old, external),
            "sequence": _integers([arg.sequence for arg in args]),
            "forward_thread": _integers([arg.forward_thread for arg in args]),
        }
        tables: dict[str, Columns] = {"events": events}
        for table, kinds, extract in (
            ("kernel_args", (Kind.KERNEL,), _kernel_args),
            ("api_args", (Kind.RUNTIME, Kind.DRIVER), _api_args),
            ("python_args", (Kind.PYTHON,), _python_args),
            ("sync_args", (Kind.SYNC,), self._sync_args),
            ("operator_args", _HOST_TEXTS, self._operator_args),
        ):
            chosen = _where(kind, kinds)
            if len(chosen):
                tables[table] = extract(chosen, [args[number] for number in chosen.tolist()])
        if not common:
            self._rare_args(args, tables)
            launches = [arg for arg in compress(args, (kind == Kind.RUNTIME).tolist()) if arg.grid]
            if launches:
                tables["launches"] = _launches(launches)
        chosen = _where(kind, (Kind.MEMCPY, Kind.MEMSET))
        if len(chosen):
            tables["copy_args"] = _copy_args(chosen, rows, args, kind)
        return tables

    def _place_numbers(self, rows: Sequence[Row]) -> list[int]:
        numbers = self._places.numbers(
            zip([row.cat for row in rows], [row.pid for row in rows], [row.tid for row in rows], strict=True)
        )
        if len(self._kind_of_place) < len(self._places):
            for number, (category, _, _) in enumerate(self._places):
                if number >= len(self._kind_of_place):
                    self._kind_of_place.append(classify(category)[0].kind)
                    if category in _SPECIAL:
                        self._special_places[number] = category
        return numbers

    def _kinds(self, place: np.ndarray, name: np.ndarray, rows: list[Row]) -> np.ndarray:
        kind = np.array(self._kind_of_place, dtype=np.uint8)[place]
        for number, category in self._special_places.items():
            chosen = np.flatnonzero(place == number)
            if category == "Operator":
                kind[chosen] = [
                    Kind.ANNOTATION if annotation_in_disguise(rows[row].name) else Kind.OPERATOR
                    for row in chosen.tolist()
                ]
            elif category == "mtia_ccp_events":
                kind[chosen] = [mtia_device_kind(rows[row].name) for row in chosen.tolist()]
        return kind

    def _operator_args(self, chosen: np.ndarray, args: list[Args]) -> Columns:
        # One lookup for all lists of a row: they repeat together, step after step.
        keys = [b"\0".join((arg.concrete, arg.types, arg.strides, arg.dims)) for arg in args]
        if self._special_places:
            keys = [key + b"\0" + bytes(arg.dims_2021) for key, arg in zip(keys, args, strict=True)]
        shape = _numbers(self._shapes.numbers(keys), np.uint32)
        self._register_shapes()
        stack = module = scope = np.zeros(len(args), dtype=np.uint32)
        if any([arg.call_stack or arg.module or arg.scope for arg in args]):  # noqa: C419 (twice as fast as a generator)
            stack = self._text([arg.call_stack for arg in args])
            module = self._text([arg.module for arg in args])
            scope = self._text([arg.scope for arg in args])
        shape = np.where(self._shape_texts[:, shape].any(axis=0), shape, 0) if self._special_places else shape
        kept = (shape | stack | module | scope) != 0
        shape = shape[kept]
        concrete, types, strides, dims = self._shape_texts
        return {
            "event": chosen[kept],
            "dims_text": dims[shape],
            "types_text": types[shape],
            "strides_text": strides[shape],
            "concrete_text": concrete[shape],
            "call_stack_text": stack[kept],
            "module_text": module[kept],
            "scope_text": scope[kept],
        }

    def _register_shapes(self) -> None:
        new = self._shapes.take_new()
        first = len(self._shapes) - len(new)
        while len(self._shapes) > self._shape_texts.shape[1]:
            self._shape_texts = np.hstack([self._shape_texts, np.zeros_like(self._shape_texts)])
        for number, key in enumerate(new, first):
            concrete, types, strides, *dims = key.decode("utf-8", "replace").split("\0")
            self._shape_texts[:, number] = self._texts.numbers([concrete, types, strides, max(dims)])

    def _rare_args(self, args: list[Args], tables: dict[str, Columns]) -> None:
        """Tables of what few rows have, found in one pass over all of them."""
        rare = [number for number, arg in enumerate(args) if arg.kernel_hash or arg.collective or arg.kernel_backend]
        if rare:
            chosen = np.array(rare, dtype=np.uint32)
            of_rare = [args[number] for number in rare]
            tables["triton_args"] = self._triton_args(chosen, of_rare)
            tables["collective_args"] = self._collective_args(chosen, of_rare)

    def _triton_args(self, chosen: np.ndarray, args: list[Args]) -> Columns:
        kept = [bool(arg.kernel_hash or arg.kernel_backend) for arg in args]
        args = list(compress(args, kept))
        return {
            "event": chosen[kept],
            "kernel_file_text": self._text([arg.kernel_file for arg in args]),
            "kernel_hash_text": self._text([arg.kernel_hash for arg in args]),
            "grid_text": self._text([_as_text(arg.grid) for arg in args]),
            "num_warps": _integers([arg.num_warps for arg in args], np.int32),
            "num_stages": _integers([arg.num_stages for arg in args], np.int32),
        }

    def _collective_args(self, chosen: np.ndarray, args: list[Args]) -> Columns:
        kept = [arg.collective != "" for arg in args]
        args = list(compress(args, kept))
        return {
            "event": chosen[kept],
            "collective_text": self._text([arg.collective for arg in args]),
            "dtype_text": self._text([arg.dtype for arg in args]),
            "group_text": self._text([str(arg.group if arg.group != "" else arg.group_old) for arg in args]),
            "description_text": self._text([arg.description for arg in args]),
            "ranks_text": self._text([_ranks(bytes(arg.ranks)) for arg in args]),
            "in_elements": _integers([arg.in_elements for arg in args]),
            "out_elements": _integers([arg.out_elements for arg in args]),
            "group_size": _integers([arg.group_size for arg in args]),
            "rank": _integers([arg.rank for arg in args]),
            "sequence_number": _integers([arg.seq for arg in args]),
            "asynchronous": np.array([_flag(arg.asynchronous) for arg in args], dtype=np.int8),
        }

    def _sync_args(self, chosen: np.ndarray, args: list[Args]) -> Columns:
        return {
            "event": chosen,
            "sync_text": self._text([arg.sync_kind for arg in args]),
            "wait_on_stream": _integers([arg.wait_on_stream for arg in args]),
            "wait_on_record": _integers([arg.wait_on_record for arg in args]),
            "wait_on_event": _integers([arg.wait_on_event for arg in args]),
        }

    def _text(self, texts: Sequence[str]) -> np.ndarray:
        return _numbers(self._texts.numbers(texts), np.uint32)

    # -- the other phases ----------------------------------------------------------------------------------------

    def _flows(self, rows: list[Row]) -> Columns:
        return {
            "id": _integers([row.id for row in rows]),
            "end": _numbers([row.ph != "s" for row in rows], np.uint8),
            "time": _times(rows),
            "place": _numbers(self._place_numbers(rows), np.int32),
        }

    def _begins(self, rows: list[Row], events: Columns) -> list[Mark]:
        return [
            Mark(row.ph, int(events["place"][number]), int(events["start"][number]), number, _pair_key(row))
            for number, row in enumerate(rows)
            if row.ph != "X"
        ]

    def _rest(
        self,
        rest: list[tuple[int, Row]],
        tables: dict[str, Columns],
        marks: list[Mark],
        reading: Reading,
        loose: LooseArgs,
    ) -> list[tuple[Place, str]]:
        """Instants, counters, slice ends and metadata; returns lane labels."""
        memory: list[Row] = []
        instants: list[Row] = []
        by_key: dict[str, list[tuple[int, Row]]] = {"C": [], "M": []}
        for number, row in rest:
            if row.ph in _INSTANT:
                (memory if row.name == "[memory]" or row.cat == "cpu_instant_event" else instants).append(row)
            elif row.ph in by_key:
                by_key[row.ph].append((number, row))
            elif row.ph in _END:
                place = self._place_numbers([row])[0]
                marks.append(Mark(row.ph, place, int(_times([row])[0]), -1, _pair_key(row)))
            elif row.ph not in _BEGIN:
                reading.lose(f'phase "{row.ph}" is not used' if row.ph else "row without a phase", row.name)
        if memory:
            tables["memory"] = self._memory(memory)
        if instants:
            tables["instants"] = {
                "name": _numbers(self._names.numbers([row.name for row in instants]), np.uint32),
                "time": _times(instants),
                "place": _numbers(self._place_numbers(instants), np.int32),
            }
        if by_key["C"]:
            tables["counters"] = self._counters(by_key["C"], loose)
        named = [(number, row) for number, row in by_key["M"] if row.name == "thread_name"]
        found = loose([number for number, _ in named]) if named else []
        return [
            (Place("", row.pid, row.tid), label.strip())
            for (_, row), args in zip(named, found, strict=True)
            if isinstance(label := args.get("name"), str)
        ]

    def _memory(self, rows: list[Row]) -> Columns:
        args = [row.args or EMPTY_ARGS for row in rows]
        return {
            "time": _times(rows),
            "place": _numbers(self._place_numbers(rows), np.int32),
            "bytes": _integers([arg.memory_bytes for arg in args]),
            "address": _integers([arg.address for arg in args], unsigned=True).view(np.uint64),
            "allocated": _integers([arg.allocated for arg in args]),
            "reserved": _integers([arg.reserved for arg in args]),
            "device_type": _integers([arg.device_type for arg in args], np.int32),
            "device_id": _integers([arg.device_id for arg in args], np.int32),
        }

    def _counters(self, numbered: list[tuple[int, Row]], loose: LooseArgs) -> Columns:
        found = loose([number for number, _ in numbered])
        rows = [row for (_, row), args in zip(numbered, found, strict=True) for _ in args]
        return {
            "name": _numbers(self._names.numbers([row.name for row in rows]), np.uint32),
            "key_text": self._text([key for args in found for key in args]),
            "time": _times(rows),
            "value": np.array([_float(value) for args in found for value in args.values()], dtype=np.float64),
            "place": _numbers(self._place_numbers(rows), np.int32),
        }


_SPECIAL = {"Operator", "Runtime", "Kernel", "Memcpy", "Memset", "mtia_ccp_events"}
"""Categories whose rows need a second look: those of 2021 (other spelling of ids, annotations among the operators) and
MTIA's (several kinds of device work in one category)."""


# -- side tables that need no texts ------------------------------------------------------------------------------------


def _kernel_args(chosen: np.ndarray, args: list[Args]) -> Columns:
    grid, block = _triples([arg.grid for arg in args]), _triples([arg.block for arg in args])
    return {
        "event": chosen,
        "grid_x": grid[:, 0],
        "grid_y": grid[:, 1],
        "grid_z": grid[:, 2],
        "block_x": block[:, 0].astype(np.int32),
        "block_y": block[:, 1].astype(np.int32),
        "block_z": block[:, 2].astype(np.int32),
        "registers": _integers([arg.registers for arg in args], np.int32),
        "shared_memory": _integers([arg.shared_memory for arg in args]),
        "blocks_per_sm": _floats([arg.blocks_per_sm for arg in args]),
        "warps_per_sm": _floats([arg.warps_per_sm for arg in args]),
        "occupancy": _floats([arg.occupancy for arg in args]),
        "queued": _integers([arg.queued for arg in args]),
        "context": _integers([arg.context for arg in args]),
        "priority": _integers([arg.priority for arg in args], np.int32),
        "graph_id": _integers([arg.graph_id for arg in args]),
        "graph_node_id": _integers([arg.graph_node_id for arg in args]),
    }


def _launches(args: list[Args]) -> Columns:
    grid, block = _triples([arg.grid for arg in args]), _triples([arg.block for arg in args])
    return {
        "correlation": _integers([arg.correlation for arg in args]),
        "grid": grid,
        "block": block,
        "shared_memory": _integers([arg.shared_memory for arg in args]),
    }


def _api_args(chosen: np.ndarray, args: list[Args]) -> Columns:
    cbid = _integers([arg.cbid for arg in args])
    if (cbid == -1).any():
        cbid = np.where(cbid == -1, _integers([arg.cid for arg in args]), cbid)
    kept = cbid != -1
    return {"event": chosen[kept], "cbid": cbid[kept]}


def _python_args(chosen: np.ndarray, args: list[Args]) -> Columns:
    return {
        "event": chosen,
        "python_id": _integers([arg.python_id for arg in args]),
        "parent_id": _integers([-1 if arg.python_parent is None else arg.python_parent for arg in args]),
        "module_id": _integers([arg.python_module for arg in args]),
    }


def _copy_args(chosen: np.ndarray, rows: list[Row], args: list[Args], kind: np.ndarray) -> Columns:
    numbers = chosen.tolist()
    copies = [
        copy_of(rows[number].name, args[number].kind or args[number].direction, bool(kind[number] == Kind.MEMSET))
        for number in numbers
    ]
    payload = [_payload(args[number]) for number in numbers]
    return {
        "event": chosen,
        "bytes": _integers(payload),
        "bandwidth": _floats([args[number].bandwidth for number in numbers]),
        "direction": np.array([copy.direction for copy in copies], dtype="U8"),
        "source": np.array([copy.source for copy in copies], dtype="U8"),
        "destination": np.array([copy.destination for copy in copies], dtype="U8"),
    }


# -- small conversions -------------------------------------------------------------------------------------------------


def _where(kind: np.ndarray, kinds: tuple[int, ...]) -> np.ndarray:
    mask = kind == kinds[0]
    for other in kinds[1:]:
        mask |= kind == other
    return np.flatnonzero(mask).astype(np.uint32)


def _numbers(values: Sequence[int], dtype: type[np.generic]) -> np.ndarray:
    return np.fromiter(values, dtype=dtype, count=len(values))


_READING: ContextVar[Reading] = ContextVar("reading")
"""What the batch that is being made counts its repairs in."""


def _integers(
    values: Sequence[Any], dtype: type[np.signedinteger[Any]] = np.int64, *, unsigned: bool = False
) -> np.ndarray:
    """Integers as they are; texts are read as decimal or 0x, anything else becomes -1. What needs the sign's bit wraps, so
    that equal ids stay equal, and is counted unless the column is `unsigned`."""
    try:
        return np.fromiter(values, dtype=dtype, count=len(values))
    except (OverflowError, ValueError, TypeError):
        bits = np.dtype(dtype).itemsize * 8
        return np.fromiter((_integer(value, bits, unsigned) for value in values), dtype=dtype, count=len(values))


def _integer(value: Any, bits: int, unsigned: bool) -> int:
    if isinstance(value, str):
        try:
            value = int(value, 16 if value.strip().lower().startswith(("0x", "-0x")) else 10)
        except ValueError:
            return -1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        return -1
    fits = -(1 << (bits - 1)) <= value < (1 << bits)
    # All bits set is how C++ writes -1 as unsigned: nothing is lost.
    if not fits or (value >= 1 << (bits - 1) and not unsigned and value != (1 << bits) - 1):
        _READING.get().repair("integer too large for its field", str(value)[:40])
    if not fits:
        return -1
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _floats(values: Sequence[float]) -> np.ndarray:
    result = np.fromiter(values, dtype=np.float64, count=len(values))
    result[np.abs(result) > 3.0e38] = np.nan
    return result.astype(np.float32)


def _float(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan
    return number if abs(number) < np.inf else np.nan


def _triples(values: Sequence[list[int] | str]) -> np.ndarray:
    """Grids or blocks as int64 of shape (rows, 3), -1 where absent."""
    if set(map(len, values)) == {3}:
        try:
            return np.fromiter(chain.from_iterable(values), np.int64, 3 * len(values)).reshape(-1, 3)
        except (OverflowError, ValueError, TypeError):
            pass
    padded = [[*value, -1, -1, -1][:3] if isinstance(value, list) else [-1, -1, -1] for value in values]
    return _integers([number for value in padded for number in value]).reshape(-1, 3)


def _times(rows: Sequence[Row]) -> np.ndarray:
    if rows and isinstance(rows[0], WideRow):
        return from_text([bytes(row.ts) for row in rows])  # type: ignore[call-overload]
    return from_floats([row.ts for row in rows])


def _durations(rows: list[Row], reading: Reading) -> np.ndarray:
    """Durations in ns. Absent on a complete slice: 0, counted. Negative or longer than a week: 0, counted."""
    duration = from_floats([row.dur for row in rows])
    absent = duration == MISSING
    odd = ((duration < 0) | (duration > _TOO_LONG)) & ~absent
    if absent.any():
        complete = np.fromiter((row.ph == "X" for row in rows), dtype=bool, count=len(rows))
        _count(reading, "slice without a duration", absent & complete, rows)
    _count(reading, "impossible duration", odd, rows)
    duration[absent | odd] = 0
    return duration


def _count(reading: Reading, reason: str, mask: np.ndarray, rows: list[Row]) -> None:
    if mask.any():
        first = rows[int(np.flatnonzero(mask)[0])]
        reading.repair(reason, f"{first.name}: ts {first.ts}, dur {first.dur}", int(np.count_nonzero(mask)))


def _payload(arg: Args) -> int | str:
    return arg.bytes if arg.bytes != -1 else arg.size


def _pair_key(row: Row) -> str:
    """What the two rows of an asynchronous slice have in common; nothing but the lane for synchronous ones."""
    return "" if row.ph in "BE" else f"{row.cat}\0{row.id}\0{row.name}"


def _as_text(value: list[int] | str) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _ranks(raw: bytes) -> str:
    """`Process Group Ranks`: a JSON list in some builds, the text of one in others."""
    text = raw.decode("utf-8", "replace")
    return str(json.loads(text, strict=False)) if text.startswith('"') else text


def _flag(value: bool | int | str) -> int:
    if isinstance(value, str):
        return {"true": 1, "1": 1, "false": 0, "0": 0}.get(value.lower(), -1)
    return int(value) if value in (0, 1) else -1
