"""A trace -> its `StepGraph`: the steady steps, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.replay.inferred.device_order import NEVER, DeviceOrder
from lanewise.replay.inferred.stream_waits import stream_waits
from lanewise.replay.lines import Lines
from lanewise.replay.points import Points
from lanewise.replay.steady_run import SteadyRun
from lanewise.trace.intervals import covered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanewise.trace.intervals import Union
    from lanewise.trace.model import Trace

__all__ = ["build_graph"]


def build_graph(
    trace: Trace,
    *,
    waiting: np.ndarray,
    steady: np.ndarray,
    stalls: Union,
    done: int | None = None,
    head: int = 0,
    held: Mapping[int, int] | None = None,
) -> StepGraph:
    """The graph of the longest run of steady steps; of all steps, or of the whole window, where none is steady.

    Args:
        trace: the trace.
        waiting: which events are calls that block until the device has finished something, bool, shape (events,).
        steady: which steps may be replayed, bool, shape (steps,).
        stalls: time in which the profiler itself held up the host.
        done: when the host was done with a recording without marks, ns; by default with its last row.
        head: until when the device did work from before the recording, ns; a single step begins then.
        held: when each stream (a lane) was free of such work, ns, where its first operation waited for it.
    """
    run = SteadyRun.of(trace, steady, done=done, head=head, held=held or {})
    lines = Lines.of(trace, run.main_lane)
    line_of_lane = lines.of_lane
    device = DeviceOrder(trace, run)
    points = Points.of(trace, run, waiting, line_of_lane, device.launches)
    launched_by = points.launch_of(device.launch)
    holds = device.holds(launched_by >= 0, stream_waits(device, line_of_lane))
    order = _order(points, device, launched_by)
    # Nodes are numbered points first, then operations, and then put in order.
    hosts, count = len(points), len(device)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))

    def ordered(host: np.ndarray, operation: np.ndarray) -> np.ndarray:
        return np.concatenate((host, operation))[order]

    def placed(host: np.ndarray, operation: np.ndarray) -> np.ndarray:
        node = np.concatenate((host, operation))
        result = np.where(node >= 0, place[np.maximum(node, 0)], -1)[order]
        # What would come later in the order is no dependency.
        return np.where(result < np.arange(len(result)), result, -1)

    row_of_work = np.full(len(trace.device_work) + 1, -1, dtype=np.int64)
    row_of_work[device.row] = np.arange(count) + hosts
    target = row_of_work[points.target]
    first, lag = placed(target, launched_by), ordered(points.lag, holds.lag)
    second = placed(np.full(hosts, -1, np.int64), np.where(holds.other >= 0, holds.other + hosts, -1))
    second_lag = ordered(np.zeros(hosts), holds.other_lag)
    past = np.full(len(order), float(NEVER))
    # Once the run repeats, a wait for work from before it is for the round before.
    for point in np.flatnonzero(points.target >= 0).tolist():
        row = int(points.target[point])
        event = trace.device_work[row]
        if trace.steps.of_event[event] >= run.first or (twin := device.twin_of(row)) < 0:
            continue
        node = int(place[twin + hosts])
        first[place[point]] = -2 - node
        past[node] = max(past[node], float(trace.end[event] - run.begins[0]))
    # The replay looks at the second only after the first.
    only = (first == -1) & (second >= 0)
    first, lag, second = np.where(only, second, first), np.where(only, second_lag, lag), np.where(only, -1, second)

    host_lines = int(points.line.max()) + 1 if hosts else 1
    lanes, streams = np.unique(device.lane, return_inverse=True)
    ready = np.array([holds.ready.get(int(lane), NEVER) - int(run.begins[0]) for lane in lanes])
    until = max(run.until, int(device.end.max(initial=0)))
    rows = points.rows()
    profiler = points.profiler(stalls)
    return StepGraph(
        trace=trace,
        steps=run.steps if trace.steps.recorded else 1,
        lane=ordered(points.line, streams + host_lines),
        host_lines=host_lines,
        event=ordered(points.event, device.event),
        gap=ordered(np.maximum(points.start - points.begin, 0) + points.own, holds.pause),
        duration=ordered(np.zeros(hosts), (device.end - device.start).astype(np.float64)),
        dependency=first,
        lag=lag,
        second=second,
        second_lag=second_lag,
        begin=ordered(points.begin, device.start),
        end=ordered(points.end, device.end),
        own=ordered(points.own, np.zeros(count)),
        profiler=ordered(np.where(points.line == 0, covered(profiler, points.begin, points.end), 0.0), np.zeros(count)),
        step=ordered(points.step, trace.steps.of_event[device.event] - run.first),
        rows=np.concatenate((rows, np.zeros((count, rows.shape[1]), np.int64)))[order],
        line_of_lane=line_of_lane,
        unrecorded=lines.unrecorded(run.begins, profiler),
        rows_left=np.ones(len(order)),
        ready=np.concatenate((np.zeros(host_lines), np.maximum(ready, 0))),
        past=past,
        recorded_ns=float(until - run.begins[0]),
        head=float(run.head),
    )


def _order(points: Points, device: DeviceOrder, launched_by: np.ndarray) -> np.ndarray:
    """Points and operations in an order in which each comes after what it waits for."""
    key = device.start.astype(np.int64)
    linked = launched_by >= 0
    key[linked] = np.maximum(key[linked], points.time[launched_by[linked]])
    if len(key):
        # Streams stay in order even where the clocks of host and device disagree.
        stream = device.lane.astype(np.int64) * (int(max(key.max(), device.end.max())) + 2)
        key = np.maximum.accumulate(stream + key) - stream
    keys = np.concatenate((points.time, key))
    kind = np.concatenate((np.zeros(len(points), np.int8), np.ones(len(key), np.int8)))
    return np.lexsort((np.arange(len(keys)), kind, keys))
