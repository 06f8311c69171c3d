"""Every table and column of a `Trace`: type, unit, meaning.

The reader produces exactly these columns, the documentation page and the tooltips are generated from them, and a test
checks that the three agree. Times are int64 nanoseconds from the start of the trace. `-1` marks a missing integer and
NaN a missing float, so that every column is a plain array without a null mask.

`name` columns hold a row number of `Trace.names`; `*_text` columns hold a row number of `Trace.texts` (row 0 is the
empty text). `Trace.frame(table)` gives the same table as a polars frame with the text filled in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["ENGINE_PREFIX", "KINDS", "TABLES", "Column", "Kind", "empty_table"]

ENGINE_PREFIX = "autograd::engine::evaluate_function: "
"""What the names of rows begin with in which autograd runs a node; the node's name follows."""


class Column(NamedTuple):
    """One column: numpy dtype, unit (empty for none) and meaning."""

    dtype: str
    unit: str
    meaning: str


class Kind:
    """Values of `events.kind`: the words of the field, not of one vendor."""

    ANNOTATION = 0
    OPERATOR = 1
    PYTHON = 2
    RUNTIME = 3
    DRIVER = 4
    SYNC = 5
    OVERHEAD = 6
    KERNEL = 7
    MEMCPY = 8
    MEMSET = 9
    GPU_ANNOTATION = 10
    COUNTER = 11
    OTHER = 12


KINDS: tuple[str, ...] = (
    "annotation",
    "operator",
    "python",
    "runtime",
    "driver",
    "sync",
    "overhead",
    "kernel",
    "memcpy",
    "memset",
    "gpu_annotation",
    "counter",
    "other",
)

_EVENT = Column("u4", "row of events", "The event that this row describes.")

TABLES: dict[str, dict[str, Column]] = {
    # One row per slice, in file order; the row number is the event id. Instants and counters have tables of their own.
    "events": {
        "lane": Column("i4", "row of lanes", "Where it ran: a host thread or a device stream."),
        "kind": Column("u1", "", "What it is; see KINDS."),
        "name": Column("u4", "row of names", "Its name as recorded."),
        "start": Column("i8", "ns", "Start, from the start of the trace."),
        "duration": Column("i8", "ns", "Length; never negative (a negative one is counted in health and set to 0)."),
        "correlation": Column("i8", "", "Joins an API call with the device work that it launched; -1 if absent."),
        "external_id": Column("i8", "", "Operator id (`External id`); -1 if absent."),
        "sequence": Column("i8", "", "Autograd sequence number; -1 if absent."),
        "forward_thread": Column(
            "i8", "", "Profiler id of the thread of the forward operator; 0 on forward rows, -1 if absent."
        ),
    },
    "lanes": {
        "side": Column(
            "U6", "", "`host`, `device`, or `none` for rows that belong to neither (profiler overhead, spans)."
        ),
        "process": Column("U64", "", "Process id of a host lane, device ordinal of a device lane, as text."),
        "thread": Column("U64", "", "Thread id of a host lane, stream of a device lane, as text."),
        "label": Column("U128", "", "The thread or stream name that the file gives, or one made from the ids."),
    },
    "kernel_args": {
        "event": _EVENT,
        "grid_x": Column("i8", "blocks", "Grid size; -1 if absent."),
        "grid_y": Column("i8", "blocks", "Grid size; -1 if absent."),
        "grid_z": Column("i8", "blocks", "Grid size; -1 if absent."),
        "block_x": Column("i4", "threads", "Block size; -1 if absent."),
        "block_y": Column("i4", "threads", "Block size; -1 if absent."),
        "block_z": Column("i4", "threads", "Block size; -1 if absent."),
        "registers": Column("i4", "per thread", "Registers per thread; -1 if absent."),
        "shared_memory": Column("i8", "bytes", "Static plus dynamic shared memory per block; -1 if absent."),
        "blocks_per_sm": Column(
            "f4", "", "Grid size divided by the number of SMs: below 1 some SMs get no block. Not residency."
        ),
        "warps_per_sm": Column("f4", "", "The same in warps."),
        "occupancy": Column("f4", "%", "The profiler's own estimate; wrong above 48 KiB of shared memory (trap V1)."),
        "queued": Column("i8", "ns", "0 unless requested; not a queue time; -1 if absent."),
        "context": Column("i8", "", "Device context id; -1 if absent."),
        "priority": Column("i4", "", "Stream priority; -1 if absent."),
        "graph_id": Column("i8", "", "CUDA graph id, written by newer builds only; -1 if absent."),
        "graph_node_id": Column("i8", "", "Node within the graph; -1 if absent."),
    },
    "copy_args": {
        "event": _EVENT,
        "bytes": Column("i8", "bytes", "Payload; a device-to-device copy moves twice that. -1 if absent."),
        "bandwidth": Column("f4", "GB/s", "Payload over time as recorded; NaN if absent or infinite."),
        "direction": Column("U8", "", "`HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH`, `set` or `?`."),
        "source": Column("U8", "", "`pageable`, `pinned`, `device`, `managed`, `array` or `?`."),
        "destination": Column("U8", "", "As source."),
    },
    "operator_args": {
        "event": _EVENT,
        "dims_text": Column("u4", "row of texts", "`Input Dims` as JSON."),
        "types_text": Column("u4", "row of texts", "`Input type` as JSON."),
        "strides_text": Column("u4", "row of texts", "`Input Strides` as JSON."),
        "concrete_text": Column("u4", "row of texts", "`Concrete Inputs` as JSON."),
        "call_stack_text": Column("u4", "row of texts", "`Call stack` of old or verbose traces; frames joined by `;`."),
        "module_text": Column("u4", "row of texts", "`Module Hierarchy`."),
        "scope_text": Column("u4", "row of texts", "`scope` where the build writes it."),
    },
    "python_args": {
        "event": _EVENT,
        "python_id": Column("i8", "", "`Python id` of the frame; -1 if absent."),
        "parent_id": Column("i8", "", "`Python parent id`: authoritative, unlike time nesting; -1 at the root."),
        "module_id": Column("i8", "", "`Python module id` of `nn.Module` rows; -1 if absent."),
    },
    "triton_args": {
        "event": _EVENT,
        "kernel_file_text": Column("u4", "row of texts", "Generated source file that the row names; never opened."),
        "kernel_hash_text": Column("u4", "row of texts", "Hash of the generated kernel."),
        "grid_text": Column("u4", "row of texts", "Launch grid as recorded."),
        "num_warps": Column("i4", "", "Warps per block; -1 if absent."),
        "num_stages": Column("i4", "", "Pipeline stages; -1 if absent."),
    },
    "collective_args": {
        "event": _EVENT,
        "collective_text": Column("u4", "row of texts", "`Collective name`."),
        "dtype_text": Column("u4", "row of texts", "Element type."),
        "group_text": Column("u4", "row of texts", "`Process Group Name`."),
        "description_text": Column("u4", "row of texts", "`Process Group Description`."),
        "ranks_text": Column("u4", "row of texts", "`Process Group Ranks` as JSON."),
        "in_elements": Column("i8", "elements", "`In msg nelems`; -1 if absent."),
        "out_elements": Column("i8", "elements", "`Out msg nelems`; -1 if absent."),
        "group_size": Column("i8", "ranks", "`Group size`; -1 if absent."),
        "rank": Column("i8", "", "`Rank`; -1 if absent."),
        "sequence_number": Column("i8", "", "`Seq`; -1 if absent."),
        "asynchronous": Column("i1", "", "`Is asynchronized op`; -1 if absent."),
    },
    "sync_args": {
        "event": _EVENT,
        "sync_text": Column("u4", "row of texts", "`cuda_sync_kind`."),
        "wait_on_stream": Column("i8", "", "Stream waited for; -1 if unknown."),
        "wait_on_record": Column("i8", "", "Correlation of the event record waited for; -1 if unknown."),
        "wait_on_event": Column("i8", "", "Event id waited for; -1 if unknown."),
    },
    "api_args": {
        "event": _EVENT,
        "cbid": Column("i8", "", "Callback id of the API call (`cbid`, `cid` on AMD); -1 if absent."),
    },
    "memory": {
        "time": Column("i8", "ns", "When the allocator acted."),
        "lane": Column("i4", "row of lanes", "Thread that asked."),
        "bytes": Column("i8", "bytes", "Positive for an allocation, negative for a release."),
        "address": Column("u8", "", "Address; 0 if absent."),
        "allocated": Column("i8", "bytes", "Total allocated on the device afterwards; -1 if absent."),
        "reserved": Column("i8", "bytes", "Total reserved on the device afterwards; -1 if absent."),
        "device_type": Column("i4", "", "0 CPU, 1 CUDA, 6 HIP; -1 if absent."),
        "device_id": Column("i4", "", "Device ordinal; -1 for the CPU."),
    },
    "flows": {
        "id": Column("i8", "", "Flow id, separate per category."),
        "category": Column("u4", "row of texts", "`ac2g`, `fwdbwd`, `async_cpu_to_gpu` ..."),
        "end": Column("u1", "", "0 for a flow start, 1 for a flow end."),
        "time": Column("i8", "ns", "Time of the end point."),
        "lane": Column("i4", "row of lanes", "Lane of the end point; -1 if no slice is on it."),
    },
    "instants": {
        "name": Column("u4", "row of names", "Name as recorded."),
        "time": Column("i8", "ns", "When; not part of the clock range."),
        "lane": Column("i4", "row of lanes", "Lane; -1 if no slice is on it."),
    },
    "counters": {
        "name": Column("u4", "row of names", "Counter name."),
        "key_text": Column("u4", "row of texts", "Series within the counter."),
        "time": Column("i8", "ns", "When."),
        "value": Column("f8", "", "Value."),
        "lane": Column("i4", "row of lanes", "Lane; -1 if no slice is on it."),
    },
}


def empty_table(table: str) -> dict[str, np.ndarray]:
    """The columns of `table` with no rows."""
    return {name: np.empty(0, dtype=column.dtype) for name, column in TABLES[table].items()}
