"""A trace file -> columns: the plain form, one Python step per row."""

from __future__ import annotations

import gzip
import math
import re
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lanewise.errors import InputError, NotATraceError
from lanewise.trace.dialects import annotation_in_disguise, classify, copy_of, generation_of, mtia_device_kind
from lanewise.trace.model import Trace
from lanewise.trace.reading import Reading
from lanewise.trace.schema import TABLES, Kind

__all__ = ["read"]

_FAR = 7 * 86400 * 10**9


def read(source: Any, *, cache: bool = True, progress: Any = None, max_bytes: int | None = None) -> Trace:
    """Read one trace file."""
    begun = time.perf_counter()
    data = Path(source).read_bytes()
    reading = Reading(source=str(source), bytes_read=len(data))
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
        reading.compressed = True
    tables, names, texts, metadata, base = plain(data, reading)
    reading.seconds = time.perf_counter() - begun
    return Trace(tables=tables, names=names, texts=texts, metadata=metadata, base_ns=base, reading=reading)


def plain(data: bytes, reading: Reading) -> tuple[dict[str, dict[str, np.ndarray]], list[str], list[str], dict[str, Any], int]:
    if not data.strip():
        raise InputError("the file is empty")
    try:
        top = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NotATraceError("not JSON") from None
    if isinstance(top, list):
        top = {"traceEvents": top}
    if not isinstance(top, dict) or not isinstance(top.get("traceEvents"), list):
        raise NotATraceError("no traceEvents")
    rows = top.pop("traceEvents")
    if rows and not any(isinstance(row, dict) for row in rows):
        raise NotATraceError("rows are not objects")
    return Plain(data, rows, top, reading).tables()


def ns(value: Any) -> int | None:
    """Microseconds to nanoseconds, exactly where the double allows it."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value * 1000
    whole = math.floor(value)
    return whole * 1000 + round((value - whole) * 1000)


def integer(value: Any) -> int:
    if isinstance(value, str):
        try:
            value = int(value, 0) if not value.lstrip("-").startswith("0") or "x" in value else int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return -1
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else -1
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**64:
        return -1
    return value - 2**64 if value >= 2**63 else value


def real(value: Any) -> float:
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return value if math.isfinite(value) else math.nan


def key(value: Any, device: bool = False) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    if device and (found := re.fullmatch(r"stream (\d+)", text, re.IGNORECASE)):
        return found[1]
    return text[:64]


def encoded(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def string(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else encoded(value)


class Plain:
    def __init__(self, data: bytes, rows: list[Any], top: dict[str, Any], reading: Reading) -> None:
        self.rows, self.top, self.reading = rows, top, reading
        self.names: dict[str, int] = {}
        self.texts: dict[str, int] = {"": 0}
        self.lanes: dict[tuple[str, str, str], int] = {}
        self.out: dict[str, dict[str, list[Any]]] = {t: {c: [] for c in cols} for t, cols in TABLES.items()}

    def name(self, value: Any) -> int:
        return self.names.setdefault(string(value), len(self.names))

    def text(self, value: str) -> int:
        return self.texts.setdefault(value, len(self.texts))

    def lane(self, side: str, pid: Any, tid: Any) -> int:
        return self.lanes.setdefault((side, key(pid), key(tid, True)), len(self.lanes))

    def add(self, table: str, **columns: Any) -> None:
        for name, column in self.out[table].items():
            column.append(columns[name])

    def tables(self) -> Any:
        reading = self.reading
        categories: set[str] = set()
        flow_categories: set[str] = set()
        later: list[Any] = []
        labels: dict[tuple[str, str], list[str]] = defaultdict(list)
        opened: dict[Any, list[int]] = defaultdict(list)
        starts: list[int | None] = []
        for row in self.rows:
            if not isinstance(row, dict):
                reading.lose("row is not an object")
                continue
            phase = row.get("ph")
            reading.rows += 1
            reading.rows_by_phase[str(phase)] = reading.rows_by_phase.get(str(phase), 0) + 1
            args = row.get("args") if isinstance(row.get("args"), dict) else {}
            if phase in ("X", "B", "b", "S"):
                event = self.slice(row, args, categories, starts)
                if phase != "X":
                    opened[self.pair(row)].append(event)
            elif phase in ("E", "e", "F"):
                stack = opened.get(self.pair(row))
                end = ns(row.get("ts"))
                if stack and end is not None:
                    event = stack.pop()
                    self.out["events"]["duration"][event] = max(end - (starts[event] or end), 0)
                else:
                    reading.lose("end without begin")
            elif phase in ("s", "f", "t"):
                flow_categories.add(string(row.get("cat")))
                later.append(row)
            elif phase in ("i", "I", "R", "n"):
                if row.get("cat") == "cpu_instant_event" or row.get("name") == "[memory]":
                    self.add("memory", time=ns(row.get("ts")), lane=self.lane("host", row.get("pid"), row.get("tid")),
                             bytes=integer(args.get("Bytes", 0)), address=int(args.get("Addr", 0)) % 2**64,
                             allocated=integer(args.get("Total Allocated")), reserved=integer(args.get("Total Reserved")),
                             device_type=integer(args.get("Device Type")), device_id=integer(args.get("Device Id")))
                else:
                    later.append(row)
            elif phase == "C":
                later.append(row)
            elif phase == "M":
                if row.get("name") == "thread_name":
                    labels[key(row.get("pid")), key(row.get("tid"), True)].append(string(args.get("name")).strip())
            else:
                reading.lose("phase not used")
        for stack in opened.values():
            if stack:
                reading.repair("begin without end", count=len(stack))
        base = self.base(starts)
        for start in starts:
            self.out["events"]["start"].append(-1 if start is None or not self.sane(start) else start - base)
        for row in later:
            self.late(row, base)
        self.out["memory"]["time"] = [(-1 if t is None else t - base) for t in self.out["memory"]["time"]]
        self.label(labels)
        tables = {}
        for table, columns in TABLES.items():
            data = self.out[table]
            if table != "events" and "event" in columns:
                order = np.argsort(np.array(data["event"], dtype=np.int64), kind="stable")
                tables[table] = {c: np.array(data[c], dtype=spec.dtype)[order] for c, spec in columns.items()}
            else:
                tables[table] = {c: np.array(data[c], dtype=spec.dtype) for c, spec in columns.items()}
        offset = integer(self.top.get("baseTimeNanoseconds", 0))
        reading.generation = generation_of(categories, flow_categories, "baseTimeNanoseconds" in self.top)
        wall = offset + base if offset > 0 or base > 10**18 else 0
        return tables, list(self.names), list(self.texts), self.top, wall

    def pair(self, row: dict[str, Any]) -> Any:
        lane = key(row.get("pid")), key(row.get("tid"), True)
        if row.get("ph") in ("B", "E"):
            return lane
        return row.get("pid"), row.get("cat"), row.get("id"), row.get("name")

    def base(self, starts: list[int | None]) -> int:
        known = sorted(s for s in starts if s is not None)
        if not known:
            self.sane = lambda start: True
            return 0
        median = known[(len(known) - 1) // 2]
        self.sane = lambda start: abs(start - median) <= _FAR and (start > 0 or median <= 3600 * 10**9)
        sane = [s for s in known if self.sane(s)]
        return sane[0] if sane else 0

    def slice(self, row: dict[str, Any], args: dict[str, Any], categories: set[str], starts: list[int | None]) -> int:
        reading = self.reading
        category = string(row.get("cat"))
        reading.rows_by_category[category] = reading.rows_by_category.get(category, 0) + 1
        categories.add(category)
        (kind, side), known = classify(category)
        if not known:
            reading.unknown_categories[category] = reading.unknown_categories.get(category, 0) + 1
        name = string(row.get("name"))
        if category == "Operator" and annotation_in_disguise(name):
            kind = Kind.ANNOTATION
        if category == "mtia_ccp_events":
            kind = mtia_device_kind(name)
        start = ns(row.get("ts"))
        duration = ns(row.get("dur")) if row.get("ph") == "X" else 0
        if duration is None:
            reading.repair("no duration")
            duration = 0
        if duration < 0 or duration > _FAR:
            reading.repair("impossible duration")
            duration = 0
        if start is None:
            reading.repair("no start")
        starts.append(start)
        events = self.out["events"]
        event = len(events["lane"])
        events["lane"].append(self.lane(side, row.get("pid"), row.get("tid")))
        events["kind"].append(kind)
        events["name"].append(self.name(name))
        events["duration"].append(duration)
        events["correlation"].append(integer(args.get("correlation")))
        events["external_id"].append(integer(args.get("External id", args.get("external id"))))
        events["sequence"].append(integer(args.get("Sequence number")))
        events["forward_thread"].append(integer(args.get("Fwd thread id")))
        self.side_tables(event, kind, name, args)
        return event

    def side_tables(self, event: int, kind: int, name: str, args: dict[str, Any]) -> None:
        if kind == Kind.KERNEL:
            grid, block = ([*map(integer, args.get(k) or []), -1, -1, -1][:3] for k in ("grid", "block"))
            self.add("kernel_args", event=event, grid_x=grid[0], grid_y=grid[1], grid_z=grid[2],
                     block_x=block[0], block_y=block[1], block_z=block[2],
                     registers=integer(args.get("registers per thread")), shared_memory=integer(args.get("shared memory")),
                     blocks_per_sm=real(args.get("blocks per SM")), warps_per_sm=real(args.get("warps per SM")),
                     occupancy=real(args.get("est. achieved occupancy %")), queued=integer(args.get("queued")),
                     context=integer(args.get("context")), priority=integer(args.get("priority")),
                     graph_id=integer(args.get("graph id")), graph_node_id=integer(args.get("graph node id")))
        if kind in (Kind.MEMCPY, Kind.MEMSET):
            copy = copy_of(name, string(args.get("kind", args.get("direction"))), kind == Kind.MEMSET)
            self.add("copy_args", event=event, bytes=integer(args.get("bytes", args.get("size"))),
                     bandwidth=real(args.get("memory bandwidth (GB/s)")), direction=copy.direction,
                     source=copy.source, destination=copy.destination)
        if kind in (Kind.RUNTIME, Kind.DRIVER) and ("cbid" in args or "cid" in args):
            self.add("api_args", event=event, cbid=integer(args.get("cbid", args.get("cid"))))
        if kind == Kind.PYTHON:
            self.add("python_args", event=event, python_id=integer(args.get("Python id")),
                     parent_id=integer(args.get("Python parent id")), module_id=integer(args.get("Python module id")))
        dims = args.get("Input Dims", args.get("Input dims"))
        texts = [encoded(dims), *(encoded(args.get(k)) for k in ("Input type", "Input Strides", "Concrete Inputs")),
                 *(string(args.get(k)) for k in ("Call stack", "Module Hierarchy", "scope"))]
        if any(texts):
            ids = [self.text(t) for t in texts]
            self.add("operator_args", event=event, **dict(zip(
                ("dims_text", "types_text", "strides_text", "concrete_text", "call_stack_text", "module_text", "scope_text"),
                ids, strict=True)))
        if "kernel_file" in args or "kernel_hash" in args or "kernel_backend" in args:
            self.add("triton_args", event=event, kernel_file_text=self.text(string(args.get("kernel_file"))),
                     kernel_hash_text=self.text(string(args.get("kernel_hash"))), grid_text=self.text(string(args.get("grid"))),
                     num_warps=integer(args.get("num_warps")), num_stages=integer(args.get("num_stages")))
        if "Collective name" in args:
            group = args.get("Process Group Name", args.get("Process Group ID"))
            self.add("collective_args", event=event, collective_text=self.text(string(args["Collective name"])),
                     dtype_text=self.text(string(args.get("dtype"))), group_text=self.text(string(group)),
                     description_text=self.text(string(args.get("Process Group Description"))),
                     ranks_text=self.text(string(args.get("Process Group Ranks"))),
                     in_elements=integer(args.get("In msg nelems")), out_elements=integer(args.get("Out msg nelems")),
                     group_size=integer(args.get("Group size")), rank=integer(args.get("Rank")),
                     sequence_number=integer(args.get("Seq")), asynchronous=int(args.get("Is asynchronized op", -1)))
        if kind == Kind.SYNC:
            self.add("sync_args", event=event, sync_text=self.text(string(args.get("cuda_sync_kind"))),
                     wait_on_stream=integer(args.get("wait_on_stream")),
                     wait_on_record=integer(args.get("wait_on_cuda_event_record_corr_id")),
                     wait_on_event=integer(args.get("wait_on_cuda_event_id")))

    def find_lane(self, row: dict[str, Any], sides: tuple[str, ...]) -> int:
        pid, tid = key(row.get("pid")), key(row.get("tid"), True)
        return next((lane for side in sides if (lane := self.lanes.get((side, pid, tid))) is not None), -1)

    def late(self, row: dict[str, Any], base: int) -> None:
        phase = row["ph"]
        at = ns(row.get("ts"))
        at = -1 if at is None else at - base
        if phase in "sft":
            sides = ("host", "device", "none") if phase == "s" else ("device", "host", "none")
            self.add("flows", id=integer(row.get("id")), category=self.text(string(row.get("cat"))), end=int(phase != "s"),
                     time=at, lane=self.find_lane(row, sides))
        elif phase == "C":
            for series, value in (row.get("args") or {}).items():
                self.add("counters", name=self.name(row.get("name")), key_text=self.text(series), time=at,
                         value=real(value), lane=self.find_lane(row, ("host", "device", "none")))
        else:
            self.add("instants", name=self.name(row.get("name")), time=at,
                     lane=self.find_lane(row, ("host", "device", "none")))

    def label(self, labels: dict[tuple[str, str], list[str]]) -> None:
        for side, pid, tid in self.lanes:
            named = [text for text in labels.get((pid, tid), []) if text.lower().startswith("stream") == (side == "device")]
            label = named[-1] if named else f"stream {tid}" if side == "device" else f"thread {tid}" if side == "host" else tid
            self.add("lanes", side=side, process=pid, thread=tid, label=label)
