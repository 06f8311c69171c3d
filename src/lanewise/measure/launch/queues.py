"""The queue in front of the device: how many operations are launched and not yet done, and whether a full queue holds
the host back.

A deep queue means that the host runs ahead: its launches may be slow without costing anything. An empty one means
that the device waits for the next launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Queue", "measure_queue"]

# A launch call takes 5 to 10 us; above this it waited for a free place in the queue, or for a lock.
_SLOW_NS = 50_000

# Launches behind this many unfinished operations are behind a queue that does not run dry.
_DEEP = 64


@dataclass(frozen=True, eq=False)
class Queue:
    """The queue of the busiest device.

    Attributes:
        time, depth: number of operations launched and not finished, from each time on; ns.
        per_step: columns `step, mean, deepest, empty`: time-weighted depth, the largest, and the share of the step with
            nothing in the queue, per recorded step.
        launch_p99: 99th percentile of the duration of launch calls, ns; -1 without launches.
        slow: launch calls above 50 us that found a deep queue. slow_time: their time, ns.
        buffer_full: time of `Command Buffer Full` rows, ns.
    """

    time: np.ndarray
    depth: np.ndarray
    per_step: Columns
    launch_p99: float
    slow: int
    slow_time: int
    buffer_full: int

    @property
    def back_pressure(self) -> bool:
        """Whether the host waits for the device to take work: evidence of a device-bound run, not a problem of
        launches."""
        return self.buffer_full > 0 or (self.launch_p99 > _SLOW_NS and self.slow > 0)


def measure_queue(facts: Core) -> Queue:
    """Measure the queue of the device with the most work."""
    trace, links = facts.trace, facts.trace.links
    work = trace.device_work
    mine = (trace["lanes"]["process"] == facts.classes.device)[trace.lane[work]] & (links.launch >= 0)
    events, launch = work[mine], links.launch[mine]
    time = np.concatenate((trace.start[launch], trace.end[events]))
    change = np.concatenate((np.ones(len(launch), np.int64), -np.ones(len(events), np.int64)))
    order = np.lexsort((change, time))
    time, depth = time[order], np.cumsum(change[order])
    # Only the last change of an instant is the depth from then on.
    last = np.concatenate((time[1:] != time[:-1], [True])) if len(time) else np.zeros(0, dtype=bool)
    time, depth = time[last], depth[last]

    calls = facts.launches.call
    calls = calls[links.names_of("launch", "graph_launch")[trace.name[calls]]]
    duration = trace.duration[calls]
    before = _depth_at(time, depth, trace.start[calls]) if len(calls) else np.zeros(0, np.int64)
    slow = (duration > _SLOW_NS) & (before >= _DEEP)
    full = trace.name_ids("Command Buffer Full")
    rows = np.isin(trace.name, full) if len(full) else np.zeros(len(trace), dtype=bool)
    return Queue(
        time=time,
        depth=depth,
        per_step=_per_step(facts, time, depth),
        launch_p99=float(np.percentile(duration, 99)) if len(calls) else -1.0,
        slow=int(slow.sum()),
        slow_time=int(duration[slow].sum()),
        buffer_full=int(trace.duration[rows].sum()),
    )


def _depth_at(time: np.ndarray, depth: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Depth just before each given time."""
    row = np.searchsorted(time, at, side="left") - 1
    return np.where(row >= 0, depth[np.maximum(row, 0)], 0)


def _per_step(facts: Core, time: np.ndarray, depth: np.ndarray) -> Columns:
    start, end = facts.classes.window_start, facts.classes.window_end
    number = facts.trace.steps.number
    if len(time) == 0:
        zero = np.zeros(len(number))
        return Columns({"step": number, "mean": zero, "deepest": zero.astype(np.int64), "empty": zero + 1})
    length = np.diff(time, append=time[-1])
    area = np.concatenate(([0], np.cumsum(depth * length)))
    idle = np.concatenate(([0], np.cumsum(np.where(depth == 0, length, 0))))

    def up_to(total: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
        row = np.searchsorted(time, at, side="right") - 1
        known = row >= 0
        row = np.maximum(row, 0)
        return np.where(known, total[row] + value[row] * (at - time[row]), 0)

    empty_value = (depth == 0).astype(np.int64)
    span = np.maximum(end - start, 1)
    before = np.maximum(np.minimum(time[0], end) - start, 0)
    low, high = np.searchsorted(time, start), np.searchsorted(time, end)
    deepest = np.array([int(depth[max(0, a - 1) : max(b, a)].max(initial=0)) for a, b in zip(low, high, strict=True)])
    return Columns(
        {
            "step": number,
            "mean": (up_to(area, depth, end) - up_to(area, depth, start)) / span,
            "deepest": deepest,
            "empty": (up_to(idle, empty_value, end) - up_to(idle, empty_value, start) + before) / span,
        }
    )
