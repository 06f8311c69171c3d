"""What each row of a tree under construction cost: host time, device work, launches, allocations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.nesting import innermost, nearest
from lanewise.trace.schema import Kind
from lanewise.tree.from_trace.contexts import Contexts

__all__ = ["DeviceWork", "Selection", "allocations", "device_work", "host_self", "per_group"]


@dataclass(frozen=True, eq=False)
class Selection:
    """Which part of a trace counts.

    Attributes:
        event: whether each event counts, shape (events,).
        device: whether each device op counts, shape (device,).
    """

    event: np.ndarray
    device: np.ndarray


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """Device ops with their context; one entry per device op of the trace.

    Attributes:
        context: row of the context that launched it.
        launch: event of the launch, or -1.
        gap: idle time of its stream before it, idle: of its device, delay: from its launch's start; ns, 0 if unknown.
        size: payload of a copy or set, bytes.
    """

    context: np.ndarray
    launch: np.ndarray
    gap: np.ndarray
    idle: np.ndarray
    delay: np.ndarray
    size: np.ndarray


def device_work(trace: Trace, contexts: Contexts) -> DeviceWork:
    """Contexts and waiting times of all device work."""
    device = trace.device_work
    links = trace.links
    context = _context_of_calls(trace, contexts, links.launch)
    by_operator = (context < 0) & (links.operator >= 0)
    context[by_operator] = contexts.row[links.operator[by_operator]]
    context = np.where(context >= 0, context, np.where(links.orphan == 1, contexts.head, contexts.lost))
    start = trace.start[device]
    linked = links.launch >= 0
    delay = np.where(linked, start - trace.start[np.maximum(links.launch, 0)], 0)
    size = np.zeros(len(device), dtype=np.int64)
    copies = trace["copy_args"]
    if len(copies["event"]):
        size[np.searchsorted(device, copies["event"])] = np.maximum(copies["bytes"], 0)
    lane = trace.lane[device].astype(np.int64)
    process = np.unique(trace["lanes"]["process"], return_inverse=True)[1].astype(np.int64)
    return DeviceWork(
        context=context,
        launch=links.launch,
        gap=_idle_before(lane, start, trace.end[device]),
        idle=_idle_before(process[lane] if len(lane) else lane, start, trace.end[device]),
        delay=np.maximum(delay, 0),
        size=size,
    )


def _context_of_calls(trace: Trace, contexts: Contexts, calls: np.ndarray) -> np.ndarray:
    """Row of the context of each API call, its lane's root where nothing is around it; -1 for call -1."""
    result = np.full(len(calls), -1, dtype=np.int64)
    known = np.flatnonzero(calls >= 0)
    at = nearest(trace.nesting.parent, contexts.row >= 0, calls[known], include_self=True)
    result[known] = np.where(at >= 0, contexts.row[at], contexts.root[trace.lane[calls[known]]])
    return result


def _idle_before(lane: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Time between the latest end of earlier work on the same lane and each start; 0 for the first work."""
    result = np.zeros(len(start), dtype=np.int64)
    if len(start) == 0:
        return result
    order = np.lexsort((start, lane))
    lanes, starts, ends = lane[order], start[order], end[order]
    first = np.concatenate(([True], lanes[1:] != lanes[:-1]))
    # A running maximum per lane: shift each lane's times above those of the lane before.
    low, high = int(start.min()), int(end.max())
    shift = (np.cumsum(first) - 1) * (high - low + 1)
    latest = np.maximum.accumulate(ends - low + shift)
    gap = np.zeros(len(order), dtype=np.int64)
    gap[1:] = np.maximum(starts[1:] - low + shift[1:] - latest[:-1], 0)
    gap[first] = 0
    result[order] = gap
    return result


def host_self(trace: Trace, contexts: Contexts) -> np.ndarray:
    """Host time spent in each row itself, ns; 0 for rows without an event. Shape (rows,)."""
    count = contexts.events
    event = contexts.event[:count]
    own = trace.duration[event].copy()
    inner = contexts.inner
    child = np.flatnonzero(inner >= 0)
    above = inner[child]
    # A crossing child may reach past its parent: only what lies inside is the parent's.
    inside = np.minimum(trace.end[event[child]], trace.end[event[above]]) - trace.start[event[child]]
    own -= np.bincount(above, weights=np.maximum(inside, 0), minlength=count).astype(np.int64)
    return np.concatenate((np.maximum(own, 0), np.zeros(len(contexts.root_name), dtype=np.int64)))


def allocations(trace: Trace, contexts: Contexts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, bytes and step of each allocation of device memory; of host memory where the trace knows no other."""
    memory = trace["memory"]
    chosen = memory["bytes"] > 0
    on_device = chosen & (memory["device_type"] > 0)
    chosen = on_device if on_device.any() else chosen
    lane, time = memory["lane"][chosen], memory["time"][chosen]
    at = innermost(trace.nesting, trace.lane, trace.start, trace.end, lane.astype(np.int64), time)
    known = at >= 0
    row = np.full(len(at), -1, dtype=np.int64)
    row[known] = _context_of_calls(trace, contexts, at[known])
    fallback = np.where(lane >= 0, contexts.root[np.maximum(lane, 0)], -1)
    row = np.where(row >= 0, row, fallback)
    row = np.where(row >= 0, row, contexts.lost)
    return row, memory["bytes"][chosen].astype(np.int64), _step_of_time(trace, time)


def _step_of_time(trace: Trace, time: np.ndarray) -> np.ndarray:
    steps = trace.steps
    row = np.searchsorted(steps.start, time, side="right") - 1
    inside = (row >= 0) & (time < steps.end[np.maximum(row, 0)])
    return np.where(inside, row, -1)


def per_group(group: np.ndarray, value: np.ndarray | None, size: int) -> np.ndarray:
    """Sum of `value` (or the count) per group, exact for sums below 2**53; int64, shape (size,)."""
    if value is None:
        return np.bincount(group, minlength=size).astype(np.int64)
    return np.bincount(group, weights=value, minlength=size).astype(np.int64)


def launch_contexts(trace: Trace, contexts: Contexts) -> tuple[np.ndarray, np.ndarray]:
    """Launching calls (events) and their context rows."""
    calls = trace.links.launches
    calls = calls[np.isin(trace.kind[calls], (Kind.RUNTIME, Kind.DRIVER))]
    return calls, _context_of_calls(trace, contexts, calls)
