"""Host time: what each call did itself, and where it only waited for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.validity.profiler_stalls import Stalls, profiler_stalls
from lanewise.trace.dialects import copy_blocks
from lanewise.trace.groups import mask_of
from lanewise.trace.model import Trace
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["Host", "measure_host"]


@dataclass(frozen=True, eq=False)
class Host:
    """Host-side facts, one entry per event unless said otherwise.

    Attributes:
        parent: nearest enclosing host event that is not a Python frame, or -1: the call tree of torch's own table.
        depth: depth in that tree.
        order: event ids from the shallowest to the deepest, for accumulation.
        self_time: duration less that of the children in that tree; ns, 0 for device events.
        waiting: whether the event is a call that blocks until the device has finished something.
        wait_inside: time of the waits in the event's subtree, itself included; ns.
        profiler_sync: the profiler's own final synchronise, or -1. It is no one's cost.
        outermost_operator: outermost operator around each event (itself if it is one), or -1.
        stalls: the profiler's own stalls; their time is in no `self_time`.
        done: when the host was done with the last step, ns; without marked steps, with its last operator or call.
    """

    parent: np.ndarray
    depth: np.ndarray
    order: np.ndarray
    self_time: np.ndarray
    waiting: np.ndarray
    wait_inside: np.ndarray
    profiler_sync: int
    outermost_operator: np.ndarray
    stalls: Stalls
    done: int

    def accumulate(self, value: np.ndarray) -> np.ndarray:
        """Sum of `value` over each event's subtree, itself included; shape (events,)."""
        total = value.copy()
        # Deepest level first, so that a parent sees its children complete.
        depth = self.depth[self.order]
        bounds = np.searchsorted(depth, np.arange(int(depth[-1]) + 2)) if len(depth) else np.zeros(1, np.int64)
        for level in range(len(bounds) - 2, 0, -1):
            events = self.order[bounds[level] : bounds[level + 1]]
            np.add.at(total, self.parent[events], total[events])
        return total


_HOST_KINDS = (Kind.ANNOTATION, Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)


def measure_host(trace: Trace) -> Host:
    """Measure the host side of a trace."""
    host = np.isin(trace.kind, _HOST_KINDS)
    events = np.flatnonzero(host)
    parent = np.full(len(trace), -1, dtype=np.int64)
    parent[events] = nearest(trace.nesting.parent, host, events)
    depth = _depths(parent, events, trace.nesting.depth)
    order = events[np.argsort(depth[events], kind="stable")]

    self_time = np.zeros(len(trace), dtype=np.int64)
    self_time[events] = trace.duration[events]
    child = events[parent[events] >= 0]
    # A crossing child may reach past its parent: only what lies inside is the parent's.
    inside = np.minimum(trace.end[child], trace.end[parent[child]]) - trace.start[child]
    np.subtract.at(self_time, parent[child], np.maximum(inside, 0))
    stalls = profiler_stalls(trace, parent)
    stalled = np.minimum(trace.end[stalls.request], trace.end[stalls.call])
    stalled -= np.maximum(trace.start[stalls.request], trace.start[stalls.call])
    np.subtract.at(self_time, stalls.call, stalled)
    np.maximum(self_time, 0, out=self_time)

    waiting = _waits(trace)
    sync = _profiler_sync(trace, waiting)
    if sync >= 0:
        waiting[sync] = False
    done = _done(trace, events, sync)
    partial = Host(parent, depth, order, self_time, waiting, self_time, sync, parent, stalls, done)
    wait_inside = partial.accumulate(np.where(waiting, trace.duration, 0))
    outermost = _outermost(trace, parent, order)
    return Host(parent, depth, order, self_time, waiting, wait_inside, sync, outermost, stalls, done)


def _done(trace: Trace, events: np.ndarray, profiler_sync: int) -> int:
    if trace.steps.recorded:
        return int(trace.steps.end[-1])
    return int(trace.end[events[events != profiler_sync]].max(initial=int(trace.steps.start[0])))


def _depths(parent: np.ndarray, events: np.ndarray, nesting_depth: np.ndarray) -> np.ndarray:
    """Depth in the reduced tree. A parent is always shallower in the full nesting, so one pass by full depth is enough."""
    depth = np.zeros(len(parent), dtype=np.int32)
    full = nesting_depth[events]
    by_full = events[np.argsort(full, kind="stable")]
    levels = nesting_depth[by_full]
    bounds = np.searchsorted(levels, np.arange(int(levels[-1]) + 2)) if len(levels) else np.zeros(1, np.int64)
    for level in range(1, len(bounds) - 1):
        at = by_full[bounds[level] : bounds[level + 1]]
        at = at[parent[at] >= 0]
        depth[at] = depth[parent[at]] + 1
    return depth


def _waits(trace: Trace) -> np.ndarray:
    """Calls that block: synchronising calls, and copies whose host memory is pageable."""
    waiting = mask_of(len(trace), trace.links.calls("wait"))
    copying = trace.links.calls("copy")
    blocking = np.array([copy_blocks(name) for name in trace.names], dtype=bool)
    waiting[copying[blocking[trace.name[copying]]]] = True
    copies = trace["copy_args"]
    if len(copies["event"]):
        pageable = copies["event"][(copies["source"] == "pageable") | (copies["destination"] == "pageable")]
        rows = np.searchsorted(trace.device_work, pageable)
        launch = trace.links.launch[rows]
        waiting[launch[launch >= 0]] = True
    return waiting


def _profiler_sync(trace: Trace, waiting: np.ndarray) -> int:
    """The synchronise that ends the recording: the last API call, a wait, outside every annotation and operator."""
    calls = trace.api_calls
    if len(calls) == 0:
        return -1
    last = int(calls[np.argmax(trace.start[calls])])
    parent = int(
        nearest(trace.nesting.parent, np.isin(trace.kind, (Kind.ANNOTATION, Kind.OPERATOR)), np.array([last]))[0]
    )
    # Pageable copies are waits too, but only an API call of the wait role can be the profiler's.
    is_wait = last in trace.links.calls("wait")
    outside_steps = not trace.steps.recorded or int(trace.steps.of_event[last]) < 0
    return last if waiting[last] and is_wait and parent < 0 and outside_steps else -1


def _outermost(trace: Trace, parent: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Outermost operator around each host event, itself included, from the top down."""
    outermost = np.full(len(trace), -1, dtype=np.int64)
    operator = trace.kind == Kind.OPERATOR
    at = order.copy()
    # Pointer jumping from each event to its topmost operator, shallow events first.
    outermost[at[operator[at]]] = at[operator[at]]
    while True:
        up = parent[at]
        live = up >= 0
        if not live.any():
            return outermost
        events, above = order[live], up[live]
        hit = operator[above]
        outermost[events[hit]] = above[hit]
        order, at = events, above
