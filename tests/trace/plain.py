"""The reader written a second time, as plainly as possible: the standard library's parser, one Python step per row.

It shares the vocabulary (`dialects`) and the schema with the real reader and nothing else. Times are decimal numbers
from the digits of the file, so it also tells whether the fast conversion loses anything.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from decimal import Decimal
from typing import Any

import numpy as np

from lanewise.trace.dialects import annotation_in_disguise, classify, copy_of, mtia_device_kind
from lanewise.trace.schema import TABLES, Kind

WEEK = 7 * 86_400 * 10**9
HOUR = 3600 * 10**9

Cells = dict[str, dict[str, list[Any]]]


def plain_tables(text: bytes) -> tuple[Cells, int]:
    """Cells of all tables by column, names and texts written out, and the base time."""
    top = json.loads(text, parse_float=Decimal)
    if isinstance(top, list):
        top = {"traceEvents": top}
    return Plain(top.pop("traceEvents"), top).tables()


def ns(value: Any) -> int | None:
    """Nanoseconds of a time in microseconds."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return round(value * 1000)


def integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return -1
    return value - 2**64 if value >= 2**63 else value


def real(value: Any) -> float:
    return float(np.float32(value)) if isinstance(value, int | Decimal) else math.nan


def key(value: Any) -> str:
    if isinstance(value, Decimal) and value == value.to_integral():
        value = int(value)
    text = "" if value is None else str(value).strip()
    found = re.fullmatch(r"stream (\d+)", text, re.IGNORECASE)
    return found[1] if found else text


class Plain:
    """Tables from decoded rows."""

    def __init__(self, rows: list[Any], metadata: dict[str, Any]) -> None:
        self.rows = rows
        self.metadata = metadata
        self.lanes: dict[tuple[str, str, str], int] = {}
        self.cells: Cells = {table: {name: [] for name in columns} for table, columns in TABLES.items()}
        self.starts: list[int | None] = []
        self.open: dict[Any, list[int]] = defaultdict(list)
        self.labels: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.grids: dict[int, tuple[list[int], list[int], int]] = {}

    def add(self, table: str, **row: Any) -> None:
        assert row.keys() == self.cells[table].keys()
        for name, cells in self.cells[table].items():
            cells.append(row[name])

    def lane(self, side: str, row: dict[str, Any]) -> int:
        return self.lanes.setdefault((side, key(row.get("pid")), key(row.get("tid"))), len(self.lanes))

    def known_lane(self, row: dict[str, Any], *sides: str) -> int:
        place = key(row.get("pid")), key(row.get("tid"))
        return next((self.lanes[side, *place] for side in sides if (side, *place) in self.lanes), -1)

    def tables(self) -> tuple[Cells, int]:
        others: list[dict[str, Any]] = []
        for row in self.rows:
            match row.get("ph"):
                case "X" | "B" | "b":
                    event = self.slice(row)
                    if row["ph"] != "X":
                        self.open[self.pair(row)].append(event)
                case "E" | "e":
                    if waiting := self.open[self.pair(row)]:
                        event = waiting.pop()
                        self.cells["events"]["duration"][event] = ns(row["ts"]) - self.starts[event]  # type: ignore[operator]
                case "M" if row.get("name") == "thread_name":
                    self.labels[key(row.get("pid")), key(row.get("tid"))].append(row["args"]["name"].strip())
                case _:
                    others.append(row)
        base = self.base()
        for start in self.starts:
            self.cells["events"]["start"].append(start - base if start is not None and self.sane(start) else -1)
        # Lanes of slices come before lanes of allocator events.
        for row in others:
            if row.get("ph") in ("i", "I") and (row.get("cat") == "cpu_instant_event" or row.get("name") == "[memory]"):
                self.memory(row, base)
        for row in others:
            self.other(row, base)
        self.label_lanes()
        self.lend_grids()
        offset = self.metadata.get("baseTimeNanoseconds", 0)
        return self.cells, offset + base if offset or base > 10**18 else 0

    def pair(self, row: dict[str, Any]) -> Any:
        lane = key(row.get("pid")), key(row.get("tid"))
        return lane if row["ph"] in "BE" else (row.get("pid"), row.get("cat"), row.get("id"), row.get("name"))

    def base(self) -> int:
        known = sorted(start for start in self.starts if start is not None)
        self.median = known[(len(known) - 1) // 2] if known else 0
        return min((start for start in known if self.sane(start)), default=0)

    def sane(self, start: int) -> bool:
        return abs(start - self.median) <= WEEK and (start > 0 or self.median <= HOUR)

    def slice(self, row: dict[str, Any]) -> int:
        args = row.get("args") or {}
        category, name = row.get("cat", ""), row.get("name", "")
        kind, side = classify(category)[0]
        if category == "Operator" and annotation_in_disguise(name):
            kind = Kind.ANNOTATION
        if category == "mtia_ccp_events":
            kind = mtia_device_kind(name)
        duration = ns(row.get("dur")) or 0
        self.starts.append(ns(row.get("ts")))
        events = self.cells["events"]
        event = len(events["lane"])
        for column, value in (
            ("lane", self.lane(side, row)),
            ("kind", kind),
            ("name", name),
            ("duration", duration if 0 <= duration <= WEEK else 0),
            ("correlation", integer(args.get("correlation"))),
            ("external_id", integer(args.get("External id", args.get("external id")))),
            ("sequence", integer(args.get("Sequence number"))),
            ("forward_thread", integer(args.get("Fwd thread id"))),
        ):
            events[column].append(value)
        self.side_tables(event, kind, name, args)
        return event

    def side_tables(self, event: int, kind: int, name: str, args: dict[str, Any]) -> None:
        if kind == Kind.KERNEL:
            (gx, gy, gz), (bx, by, bz) = (args.get(which, [-1, -1, -1]) for which in ("grid", "block"))
            self.add(
                "kernel_args", event=event, grid_x=gx, grid_y=gy, grid_z=gz, block_x=bx, block_y=by, block_z=bz,
                registers=integer(args.get("registers per thread")), shared_memory=integer(args.get("shared memory")),
                blocks_per_sm=real(args.get("blocks per SM")), warps_per_sm=real(args.get("warps per SM")),
                occupancy=real(args.get("est. achieved occupancy %")), queued=integer(args.get("queued")),
                context=integer(args.get("context")), priority=integer(args.get("priority")),
                graph_id=integer(args.get("graph id")), graph_node_id=integer(args.get("graph node id")),
            )  # fmt: skip
        if kind in (Kind.MEMCPY, Kind.MEMSET):
            copy = copy_of(name, args.get("kind", args.get("direction", "")), kind == Kind.MEMSET)
            self.add(
                "copy_args", event=event, bytes=integer(args.get("bytes", args.get("size"))),
                bandwidth=real(args.get("memory bandwidth (GB/s)")), direction=copy.direction, source=copy.source,
                destination=copy.destination,
            )  # fmt: skip
        if kind in (Kind.RUNTIME, Kind.DRIVER):
            if "cbid" in args or "cid" in args:
                self.add("api_args", event=event, cbid=args.get("cbid", args.get("cid")))
            if isinstance(args.get("grid"), list):
                self.grids[args["correlation"]] = args["grid"], args["block"], args["shared memory"]
        if kind == Kind.PYTHON:
            parent = args.get("Python parent id")
            self.add(
                "python_args", event=event, python_id=integer(args.get("Python id")),
                parent_id=-1 if parent is None else parent, module_id=integer(args.get("Python module id")),
            )  # fmt: skip
        dims = args.get("Input Dims", args.get("Input dims"))
        lists = [dims, *(args.get(name) for name in ("Input type", "Input Strides", "Concrete Inputs"))]
        texts = [args.get(name, "") for name in ("Call stack", "Module Hierarchy", "scope")]
        if any(value is not None for value in lists) or any(texts):
            self.add(
                "operator_args", event=event, dims_text=lists[0], types_text=lists[1], strides_text=lists[2],
                concrete_text=lists[3], call_stack_text=texts[0], module_text=texts[1], scope_text=texts[2],
            )  # fmt: skip
        if "kernel_hash" in args or "kernel_file" in args:
            self.add(
                "triton_args", event=event, kernel_file_text=args.get("kernel_file", ""),
                kernel_hash_text=args.get("kernel_hash", ""), grid_text=args.get("grid", ""),
                num_warps=integer(args.get("num_warps")), num_stages=integer(args.get("num_stages")),
            )  # fmt: skip
        if "Collective name" in args:
            self.add(
                "collective_args", event=event, collective_text=args["Collective name"],
                dtype_text=args.get("dtype", ""),
                group_text=str(args.get("Process Group Name", args.get("Process Group ID", ""))),
                description_text=args.get("Process Group Description", ""),
                ranks_text=args.get("Process Group Ranks", ""), in_elements=integer(args.get("In msg nelems")),
                out_elements=integer(args.get("Out msg nelems")), group_size=integer(args.get("Group size")),
                rank=integer(args.get("Rank")), sequence_number=integer(args.get("Seq")),
                asynchronous=args.get("Is asynchronized op", -1),
            )  # fmt: skip
        if kind == Kind.SYNC:
            self.add(
                "sync_args", event=event, sync_text=args.get("cuda_sync_kind", ""),
                wait_on_stream=integer(args.get("wait_on_stream")),
                wait_on_record=integer(args.get("wait_on_cuda_event_record_corr_id")),
                wait_on_event=integer(args.get("wait_on_cuda_event_id")),
            )  # fmt: skip

    def memory(self, row: dict[str, Any], base: int) -> None:
        args = row["args"]
        self.add(
            "memory", time=ns(row["ts"]) - base, lane=self.lane("host", row), bytes=args["Bytes"],  # type: ignore[operator]
            address=args.get("Addr", 0), allocated=integer(args.get("Total Allocated")),
            reserved=integer(args.get("Total Reserved")), device_type=args["Device Type"], device_id=args["Device Id"],
        )  # fmt: skip
        row["ph"] = "done"

    def other(self, row: dict[str, Any], base: int) -> None:
        time = ns(row.get("ts"))
        at = -1 if time is None else time - base
        match row.get("ph"):
            case "s":
                lane = self.known_lane(row, "host", "device", "none")
                self.add("flows", id=integer(row["id"]), category=row.get("cat", ""), end=0, time=at, lane=lane)
            case "f" | "t":
                lane = self.known_lane(row, "device", "host", "none")
                self.add("flows", id=integer(row["id"]), category=row.get("cat", ""), end=1, time=at, lane=lane)
            case "C":
                for series, value in row["args"].items():
                    lane = self.known_lane(row, "host", "device", "none")
                    value = float(value)
                    self.add("counters", name=row["name"], key_text=series, time=at, value=value, lane=lane)
            case "i" | "I":
                self.add("instants", name=row["name"], time=at, lane=self.known_lane(row, "host", "device", "none"))
            case _:
                pass

    def label_lanes(self) -> None:
        for side, process, thread in self.lanes:
            names = [name for name in self.labels[process, thread] if name]
            names = [name for name in names if name.lower().startswith("stream") == (side == "device")]
            default = {"device": f"stream {thread}", "host": f"thread {thread}"}.get(side, thread)
            self.add("lanes", side=side, process=process, thread=thread, label=names[-1] if names else default)

    def lend_grids(self) -> None:
        kernels = self.cells["kernel_args"]
        for row, event in enumerate(kernels["event"]):
            lent = self.grids.get(self.cells["events"]["correlation"][event])
            if lent is None or kernels["grid_x"][row] != -1:
                continue
            for axis, name in enumerate("xyz"):
                kernels[f"grid_{name}"][row] = lent[0][axis]
                kernels[f"block_{name}"][row] = lent[1][axis]
            if kernels["shared_memory"][row] == -1:
                kernels["shared_memory"][row] = lent[2]
