"""What the allocator did while recording: totals over time, the peak and who owns it, churn, fragmentation.

The rows are allocator events, not driver calls: blocks that a caching allocator hands out and takes back. Blocks from
before the recording are in the totals but have no row, so the owners of a peak never add up to all of it; the rest is
called what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.trace.nesting import innermost, nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["MemoryUse", "Owner", "measure_memory"]

_CPU = 0

# Operators that only get memory for the operator around them.
_ALLOCATES = r"^aten::(empty|empty_\w+|new_empty\w*|resize_|_reshape_alias)$"


@dataclass(frozen=True)
class Owner:
    """Blocks live at the peak that one call site asked for.

    Attributes:
        operator: innermost operator that the block is for, "" outside of operators. module: nearest `nn.Module` row, or "".
        annotation: outermost annotation of the program, or "". step: number of the step, -1 outside.
        bytes, blocks: their size and number. example: event id of one asking operator, -1 if none.
    """

    operator: str
    module: str
    annotation: str
    step: int
    bytes: int
    blocks: int
    example: int


@dataclass(frozen=True, eq=False)
class MemoryUse:
    """Memory of one device over the recording.

    Attributes: device: ordinal. capacity: memory of the device, bytes; 0 if the file does not say. over_time: columns
        `time, allocated, reserved`; ns, bytes; in time order. peak, peak_time: highest total allocated, and when.
        peak_reserved: highest total reserved. known_at_peak: bytes at the peak whose allocation was recorded; the
        rest is older than the recording. owners: who asked for these, the largest first. churn: columns `step,
        allocated, allocations, freed, grown`: bytes asked for, number of requests, bytes given back, and how much the
        total grew, per recorded step. reused: bytes that were asked for and given back within one step, per steady
        step. fragmentation: share of the reserved memory that is not allocated when most is reserved. totals: whether the
        trace holds totals; if not, they count from the start of the recording, and nothing is known of what is reserved.
    """

    device: int
    capacity: int
    over_time: Columns
    peak: int
    peak_time: int
    peak_reserved: int
    known_at_peak: int
    owners: tuple[Owner, ...]
    churn: Columns
    reused: float
    fragmentation: float
    totals: bool


def measure_memory(facts: Core) -> MemoryUse | None:
    """Memory of the device with the most memory in use; None if the trace holds no device memory events."""
    memory = facts.trace["memory"]
    rows = np.flatnonzero((memory["device_type"] != _CPU) & (memory["device_id"] >= 0))
    if len(rows) == 0:
        return None
    devices = np.unique(memory["device_id"][rows])
    highest = [int(memory["allocated"][rows[memory["device_id"][rows] == device]].max()) for device in devices]
    device = int(devices[int(np.argmax(highest))])
    rows = rows[memory["device_id"][rows] == device]
    # Threads write their events in turn: the file is in order per thread only.
    rows = rows[np.argsort(memory["time"][rows], kind="stable")]
    time, size = memory["time"][rows], memory["bytes"][rows]
    allocated = memory["allocated"][rows]
    totals = bool((allocated >= 0).any())
    if not totals:
        # Old builds record no totals: count from zero at the start of the recording.
        allocated = np.cumsum(size)
    reserved = memory["reserved"][rows]
    at = int(np.argmax(allocated))
    born, died = _lifetimes(memory["address"][rows], size)
    alive = born[(born <= at) & ((died > at) | (died < 0))] if len(born) else born
    fullest = int(np.argmax(reserved))
    free = 1 - int(allocated[fullest]) / int(reserved[fullest]) if reserved[fullest] > 0 else 0.0
    return MemoryUse(
        device=device,
        capacity=facts.device.memory,
        over_time=Columns({"time": time, "allocated": allocated, "reserved": reserved}),
        peak=int(allocated[at]),
        peak_time=int(time[at]),
        peak_reserved=int(reserved.max()),
        known_at_peak=int(size[alive].sum()),
        owners=_owners(facts, rows[alive]),
        churn=_churn(facts, time, size),
        reused=_reused(facts, time, size, born, died),
        fragmentation=max(0.0, free),
        totals=totals,
    )


def _lifetimes(address: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the allocations, and of what frees each: the next event at its address; -1 if it is never freed."""
    order = np.lexsort((np.arange(len(size)), address))
    allocation = size[order] > 0
    same = np.concatenate((address[order][1:] == address[order][:-1], [False]))
    released = np.concatenate((size[order][1:] < 0, [False]))
    following = np.concatenate((order[1:], [-1]))
    died = np.where(same & released, following, -1)
    return order[allocation], died[allocation]


def _owners(facts: Core, rows: np.ndarray, limit: int = 40) -> tuple[Owner, ...]:
    trace = facts.trace
    memory = trace["memory"]
    if len(rows) == 0:
        return ()
    holder = innermost(trace.nesting, trace.lane, trace.start, trace.end, memory["lane"][rows], memory["time"][rows])
    known = holder >= 0
    operator = np.full(len(rows), -1, dtype=np.int64)
    module = operator.copy()
    parent = trace.nesting.parent
    if known.any():
        asking = (trace.kind == Kind.OPERATOR) & ~trace.name_mask(_ALLOCATES)[trace.name]
        operator[known] = nearest(parent, asking, holder[known], include_self=True)
        modules = (trace.kind == Kind.PYTHON) & trace.name_mask(r"^nn\.Module: ")[trace.name]
        module[known] = nearest(parent, modules, holder[known], include_self=True)
    annotation = _outermost_annotation(facts, holder)
    step = np.where(known, trace.steps.of_event[np.maximum(holder, 0)], -1)

    def name(event: np.ndarray) -> np.ndarray:
        return np.where(event >= 0, trace.name[np.maximum(event, 0)].astype(np.int64), -1)

    keys = np.stack((name(operator), name(module), name(annotation), step), axis=1)
    unique, example, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    total = np.bincount(group, weights=memory["bytes"][rows]).astype(np.int64)
    blocks = np.bincount(group)

    def label(row: int) -> str:
        return trace.names[row] if row >= 0 else ""

    found: list[Owner] = []
    for at in np.argsort(-total, kind="stable")[:limit].tolist():
        of_operator, of_module, of_annotation, of_step = (int(value) for value in unique[at])
        number = int(trace.steps.number[of_step]) if of_step >= 0 and trace.steps.recorded else -1
        found.append(
            Owner(
                label(of_operator),
                label(of_module).removeprefix("nn.Module: "),
                label(of_annotation),
                number,
                int(total[at]),
                int(blocks[at]),
                int(operator[example[at]]),
            )
        )
    return tuple(found)


def _outermost_annotation(facts: Core, holder: np.ndarray) -> np.ndarray:
    """The outermost annotation around each event that does not mark a step, or -1."""
    trace = facts.trace
    marks = trace.name_mask(r"^ProfilerStep#")
    wanted = (trace.kind == Kind.ANNOTATION) & ~marks[trace.name]
    best = np.full(len(holder), -1, dtype=np.int64)
    at = holder.copy()
    live = at >= 0
    at[live] = nearest(trace.nesting.parent, wanted, at[live], include_self=True)
    while (at >= 0).any():
        best = np.where(at >= 0, at, best)
        live = at >= 0
        at[live] = nearest(trace.nesting.parent, wanted, at[live])
    return best


def _step_of(facts: Core, time: np.ndarray) -> np.ndarray:
    steps = facts.trace.steps
    row = np.searchsorted(steps.start, time, side="right") - 1
    inside = (row >= 0) & (time < steps.end[np.maximum(row, 0)])
    return np.where(inside, row, -1)


def _churn(facts: Core, time: np.ndarray, size: np.ndarray) -> Columns:
    steps = facts.trace.steps
    step = _step_of(facts, time)
    inside = step >= 0
    count = len(steps)
    taken = np.bincount(step[inside], weights=np.maximum(size[inside], 0), minlength=count).astype(np.int64)
    given = np.bincount(step[inside], weights=np.maximum(-size[inside], 0), minlength=count).astype(np.int64)
    requests = np.bincount(step[inside & (size > 0)], minlength=count)
    return Columns(
        {"step": steps.number, "allocated": taken, "allocations": requests, "freed": given, "grown": taken - given}
    )


def _reused(facts: Core, time: np.ndarray, size: np.ndarray, born: np.ndarray, died: np.ndarray) -> float:
    freed = died >= 0
    first, last = _step_of(facts, time[born[freed]]), _step_of(facts, time[died[freed]])
    inside = (first == last) & facts.is_steady(first)
    return float(size[born[freed]][inside].sum()) / facts.steady_count
