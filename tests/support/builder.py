"""Builds traces that state only what a test is about.

    b = TraceBuilder()
    with b.step():                       # ProfilerStep#2, #3, ... on the main thread
        with b.op("aten::add"):
            b.launch(kernel="vectorized_add", duration=5)
    trace = b.build()

Times are microseconds. A cursor moves forward as things are stated: an operator begins at the cursor and ends when its
block does, plus `tail`; a launch takes `call` and its kernel starts `delay` after the call began, or when its stream is
free. Everything can be placed by hand with `at=`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.reading_losses import Reading
from lanewise.trace.schema import TABLES, Kind

NS = 1_000


class TraceBuilder:
    """See the module."""

    def __init__(self, *, metadata: dict[str, Any] | None = None, first_step: int = 2) -> None:
        self.metadata = metadata if metadata is not None else {"deviceProperties": [H100]}
        self.now = 0.0
        self._names: dict[str, int] = {}
        self._texts: dict[str, int] = {"": 0}
        self._lanes: dict[tuple[str, str, str], tuple[int, str]] = {}
        self._events: list[dict[str, Any]] = []
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._free: dict[str, float] = {}
        self._next_step = first_step
        self._correlation = 0
        self._python = 0
        self._frames: list[int] = []
        self.thread = "100"

    # -- host ----------------------------------------------------------------------------------------------------

    def wait(self, us: float) -> None:
        """Let time pass on the host."""
        self.now += us

    def slice(
        self,
        name: str,
        kind: int,
        at: float,
        duration: float,
        *,
        side: str = "host",
        process: str = "100",
        thread: str | None = None,
        **columns: int,
    ) -> int:
        """One event, placed by hand; returns its id."""
        self._events.append(
            {
                "lane": self.lane(side, process, thread or self.thread),
                "kind": kind,
                "name": self._name(name),
                "start": round(at * NS),
                "duration": round(duration * NS),
                "correlation": -1,
                "external_id": -1,
                "sequence": -1,
                "forward_thread": -1,
                **columns,
            }
        )
        return len(self._events) - 1

    @contextmanager
    def span(
        self, name: str, kind: int = Kind.ANNOTATION, *, head: float = 1.0, tail: float = 1.0, **columns: int
    ) -> Iterator[int]:
        """An event around what the block states; `head` passes before its content, `tail` after."""
        event = self.slice(name, kind, self.now, 0, **columns)
        begin = self.now
        self.now += head
        yield event
        self.now += tail
        self._events[event]["duration"] = round((self.now - begin) * NS)

    @contextmanager
    def step(self, number: int | None = None, *, head: float = 1.0, tail: float = 1.0) -> Iterator[int]:
        """A recorded step of the profiler's schedule."""
        number = self._next_step if number is None else number
        self._next_step = number + 1
        with self.span(f"ProfilerStep#{number}", head=head, tail=tail) as event:
            yield event

    @contextmanager
    def op(
        self,
        name: str,
        *,
        head: float = 1.0,
        tail: float = 1.0,
        dims: Any = None,
        types: Any = None,
        strides: Any = None,
        concrete: Any = None,
        sequence: int = -1,
        forward_thread: int = -1,
    ) -> Iterator[int]:
        """An operator around what the block states."""
        with self.span(
            name, Kind.OPERATOR, head=head, tail=tail, sequence=sequence, forward_thread=forward_thread
        ) as event:
            if dims is not None or types is not None or concrete is not None:
                self._rows["operator_args"].append(
                    {
                        "event": event,
                        "dims_text": self._json(dims),
                        "types_text": self._json(types),
                        "strides_text": self._json(strides),
                        "concrete_text": self._json(concrete),
                        "call_stack_text": 0,
                        "module_text": 0,
                        "scope_text": 0,
                    }
                )
            yield event

    @contextmanager
    def frame(self, name: str) -> Iterator[int]:
        """A Python frame such as `train.py(12): main`, or `nn.Module: Linear_0`."""
        with self.span(name, Kind.PYTHON, head=0.5, tail=0.5) as event:
            self._python += 1
            number = self._python
            self._rows["python_args"].append(
                {
                    "event": event,
                    "python_id": number,
                    "parent_id": self._frames[-1] if self._frames else -1,
                    "module_id": 1 if name.startswith("nn.Module") else -1,
                }
            )
            self._frames.append(number)
            yield event
            self._frames.pop()

    def call(
        self, name: str, *, duration: float = 2.0, kind: int = Kind.RUNTIME, correlation: int | None = None
    ) -> int:
        """An API call without device work."""
        event = self.slice(
            name, kind, self.now, duration, correlation=self._id() if correlation is None else correlation
        )
        self.now += duration
        return event

    # -- device --------------------------------------------------------------------------------------------------

    def launch(
        self,
        kernel: str | Sequence[str] = "kernel",
        *,
        duration: float = 5.0,
        call: float = 5.0,
        delay: float = 8.0,
        stream: str = "7",
        api: str | None = None,
        grid: Sequence[int] = (264, 1, 1),
        block: Sequence[int] = (128, 1, 1),
        registers: int = 32,
        shared: int = 0,
        occupancy: float = 50.0,
        device: str = "0",
        **kernel_args: Any,
    ) -> list[int]:
        """A launch and its kernel; several kernels make it a graph launch. Returns [call, *kernels]."""
        kernels = [kernel] if isinstance(kernel, str) else list(kernel)
        api = api or ("cudaGraphLaunch" if len(kernels) > 1 else "cudaLaunchKernel")
        correlation = self._id()
        events = [
            self.slice(
                api,
                Kind.DRIVER if api.startswith("cu") and not api.startswith("cuda") else Kind.RUNTIME,
                self.now,
                call,
                correlation=correlation,
            )
        ]
        ready = self.now + delay
        self.now += call
        for name in kernels:
            events.append(
                self.kernel(
                    name,
                    ready,
                    duration,
                    stream=stream,
                    correlation=correlation,
                    grid=grid,
                    block=block,
                    registers=registers,
                    shared=shared,
                    occupancy=occupancy,
                    device=device,
                    **kernel_args,
                )
            )
        return events

    def kernel(
        self,
        name: str,
        at: float,
        duration: float,
        *,
        stream: str = "7",
        correlation: int = -1,
        grid: Sequence[int] = (264, 1, 1),
        block: Sequence[int] = (128, 1, 1),
        registers: int = 32,
        shared: int = 0,
        occupancy: float = 50.0,
        device: str = "0",
        **kernel_args: Any,
    ) -> int:
        """A kernel, no earlier than `at` and than its stream is free; without a correlation it is an orphan."""
        begin = self._place(device + "/" + stream, at, duration)
        event = self.slice(
            name, Kind.KERNEL, begin, duration, side="device", process=device, thread=stream, correlation=correlation
        )
        self._rows["kernel_args"].append(
            {
                "event": event,
                "grid_x": grid[0],
                "grid_y": grid[1],
                "grid_z": grid[2],
                "block_x": block[0],
                "block_y": block[1],
                "block_z": block[2],
                "registers": registers,
                "shared_memory": shared,
                "blocks_per_sm": grid[0] * grid[1] * grid[2] / 132,
                "warps_per_sm": 0.0,
                "occupancy": occupancy,
                "queued": 0,
                "context": 1,
                "priority": 0,
                "graph_id": -1,
                "graph_node_id": -1,
                **kernel_args,
            }
        )
        return event

    def collective(
        self,
        name: str = "allreduce",
        *,
        elements: int = 1000,
        duration: float = 50.0,
        rank: int = 0,
        size: int = 2,
        dtype: str = "Float",
        group: str = "0",
        stream: str = "20",
        kernel: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        **launch: Any,
    ) -> list[int]:
        """A collective: its operators, its launch, and its kernel with the arguments. Returns [call, kernel]."""
        arguments = {
            "collective_text": self.text(name),
            "dtype_text": self.text(dtype),
            "group_text": self.text(group),
            "description_text": 0,
            "ranks_text": 0,
            "in_elements": elements,
            "out_elements": elements,
            "group_size": size,
            "rank": rank,
            "sequence_number": -1,
            "asynchronous": -1,
        }
        with self.op(f"c10d::{name}_"), self.op("record_param_comms") as recorded:
            self.row("collective_args", event=recorded, **arguments)
            events = self.launch(kernel, duration=duration, stream=stream, **launch)
        self.row("collective_args", event=events[1], **arguments)
        return events

    def copy(
        self,
        direction: str = "HtoD",
        *,
        source: str | None = None,
        destination: str | None = None,
        size: int = 1 << 20,
        duration: float = 20.0,
        call: float | None = None,
        delay: float = 8.0,
        stream: str = "7",
        device: str = "0",
    ) -> list[int]:
        """A copy and its call. `source` and `destination` default to pinned memory and the device; a pageable copy
        keeps its call busy until it is done."""
        ends = {"HtoD": ("pinned", "device"), "DtoH": ("device", "pinned"), "DtoD": ("device", "device")}[direction]
        source, destination = source or ends[0], destination or ends[1]
        correlation = self._id()
        pageable = "pageable" in (source, destination)
        took = call if call is not None else delay + duration + 2 if pageable else 5.0
        name = f"Memcpy {direction} ({source.title()} -> {destination.title()})"
        event = self.slice("cudaMemcpyAsync", Kind.RUNTIME, self.now, took, correlation=correlation)
        begin = self._place(device + "/" + stream, self.now + delay, duration)
        self.now += took
        copy = self.slice(
            name, Kind.MEMCPY, begin, duration, side="device", process=device, thread=stream, correlation=correlation
        )
        self._rows["copy_args"].append(
            {
                "event": copy,
                "bytes": size,
                "bandwidth": size / duration / 1e3,
                "direction": direction,
                "source": source,
                "destination": destination,
            }
        )
        return [event, copy]

    def memset(
        self,
        *,
        size: int = 4,
        duration: float = 0.8,
        call: float = 4.0,
        delay: float = 8.0,
        stream: str = "7",
        device: str = "0",
    ) -> list[int]:
        """A set and its call. Returns [call, set]."""
        correlation = self._id()
        event = self.slice("cudaMemsetAsync", Kind.RUNTIME, self.now, call, correlation=correlation)
        begin = self._place(device + "/" + stream, self.now + delay, duration)
        self.now += call
        done = self.slice(
            "Memset (Device)",
            Kind.MEMSET,
            begin,
            duration,
            side="device",
            process=device,
            thread=stream,
            correlation=correlation,
        )
        self._rows["copy_args"].append(
            {
                "event": done,
                "bytes": size,
                "bandwidth": size / duration / 1e3,
                "direction": "set",
                "source": "?",
                "destination": "device",
            }
        )
        return [event, done]

    def as_copy(
        self, kernel: int, direction: str, *, size: int, source: str = "device", destination: str = "device"
    ) -> None:
        """Turn a node of a graph launch into a copy."""
        self._events[kernel]["kind"] = Kind.MEMCPY
        self._rows["kernel_args"] = [row for row in self._rows["kernel_args"] if row["event"] != kernel]
        self._rows["copy_args"].append(
            {
                "event": kernel,
                "bytes": size,
                "bandwidth": 1.0,
                "direction": direction,
                "source": source,
                "destination": destination,
            }
        )

    def synchronize(self, api: str = "cudaStreamSynchronize") -> int:
        """A wait until all streams are done."""
        until = max(self._free.values(), default=self.now)
        return self.call(api, duration=max(1.0, until - self.now + 1.0))

    def overhead(self, name: str, at: float, duration: float) -> int:
        """A row of the profiler's or driver's own work, which names no thread."""
        return self.slice(name, Kind.OVERHEAD, at, duration, side="none", process="-1", thread="0")

    # -- the rest ------------------------------------------------------------------------------------------------

    def lane(self, side: str, process: str, thread: str) -> int:
        """Row of a lane, made on first use."""
        key = (side, process, thread)
        if key not in self._lanes:
            self._lanes[key] = (len(self._lanes), f"stream {thread}" if side == "device" else f"thread {thread}")
        return self._lanes[key][0]

    def row(self, table: str, **columns: Any) -> None:
        """A row of a side table, placed by hand."""
        self._rows[table].append(columns)

    def text(self, text: str) -> int:
        """Row of `texts` for a text."""
        return self._texts.setdefault(text, len(self._texts))

    def build(self, *, reading: Reading | None = None) -> Trace:
        """The trace."""
        tables: dict[str, dict[str, np.ndarray]] = {}
        for table, columns in TABLES.items():
            rows = self._events if table == "events" else self._rows[table]
            if table == "lanes":
                rows = [
                    {"side": s, "process": p, "thread": t, "label": label}
                    for (s, p, t), (_, label) in self._lanes.items()
                ]
            if "event" in columns:
                rows = sorted(rows, key=lambda row: row["event"])
            tables[table] = {
                name: np.array([row[name] for row in rows], dtype=column.dtype) for name, column in columns.items()
            }
        return Trace(
            tables=tables,
            names=list(self._names),
            texts=list(self._texts),
            metadata=self.metadata,
            base_ns=0,
            reading=reading or Reading(source="built", rows=len(self._events)),
        )

    def _place(self, stream: str, at: float, duration: float) -> float:
        begin = max(at, self._free.get(stream, 0.0))
        self._free[stream] = begin + duration
        return begin

    def _id(self) -> int:
        self._correlation += 1
        return self._correlation

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _json(self, value: Any) -> int:
        if value is None:
            return 0
        import json

        return self.text(json.dumps(value, separators=(",", ":")))


H100: dict[str, Any] = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "totalGlobalMem": 85017493504,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 132,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}
