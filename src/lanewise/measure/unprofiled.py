"""The step without the profiler: how long it takes, and where its time goes.

Where nobody timed the step without a profiler, it is computed: the recorded run is replayed with what recording cost
taken off (`lanewise.replay`). Where it was timed, the host's work is scaled until the replay takes as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.regime.blocked import blocked_part, waits_in_gaps
from lanewise.measure.regime.held import copying_from, held_and_collected
from lanewise.measure.regime.time_classes import CLASSES, LATENCY_NS, host_part
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import Replayed, simulate
from lanewise.replay.undistort import COSTS, Costs, scaled_to, slower, undistort
from lanewise.trace.intervals import Union, clip, intersect, merge, subtract, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["DEVICE_SPREAD", "Unprofiled", "classes_of_replay", "without_profiler"]

_FAITHFUL = 1.15
"""The replay of a whole recording may take so many times as long as it did, before its classes are not believed."""
_AGAIN = 2
"""One slow step may be an accident, or the profiler's."""

DEVICE_SPREAD = 0.03
"""The device's work without the profiler is known this well, as a share of the step."""


@dataclass(frozen=True, eq=False)
class Unprofiled:
    """The step without the profiler.

    Attributes:
        graph: the run without what recording cost; changes are made to it.
        replayed: that graph, replayed.
        step_ns: what a step takes; ns. low_ns, high_ns: 80 % interval; both equal `step_ns` where it was timed.
        timed: whether `step_ns` was measured and not computed.
        recorded_ns: what a step takes where the recorded graph is replayed, ns.
        class_ns: time per class (`idle.CLASSES`) in a step, ns; sums to `step_ns`. Empty without device work.
        host_scale: the host's work without the profiler over the same as recorded.
        weighed: whether slow steps come again and count with all others: the step is the mean one then.
        faithful: whether the recorded graph, replayed, takes about as long as the recording did: what streams wait for is
            inferred, and where it is not, the replay does not say where the time goes either.
    """

    graph: StepGraph
    replayed: Replayed
    step_ns: float
    low_ns: float
    high_ns: float
    timed: bool
    recorded_ns: float
    class_ns: dict[str, float]
    host_scale: float
    weighed: bool
    faithful: bool

    @property
    def distortion(self) -> float:
        """How many times as long a step takes while it is recorded."""
        return self.recorded_ns / self.step_ns if self.step_ns else 1.0


def without_profiler(
    trace: Trace,
    recorded: StepGraph,
    *,
    device: str,
    communicating: np.ndarray,
    timed_ns: int | None,
    slow: np.ndarray,
    period_ns: float = float("inf"),
    costs: Costs = COSTS,
) -> Unprofiled:
    """Replay the run of a trace without what recording cost.

    Args:
        trace: the trace. recorded: its graph.
        device: the busiest device, "" for none.
        communicating: whether each device op is communication, bool, shape (device,).
        timed_ns: what a step takes without the profiler, if somebody timed it.
        slow: which steps take far longer than the others, bool, shape (steps,).
        period_ns: what a single step took as recorded: it takes no longer without the profiler.
        costs: what recording costs the host.
    """
    # A program has its slow steps without the profiler, too: those that come again and again are counted in.
    unusual = _in_run(trace, recorded, slow)
    again = not timed_ns and np.count_nonzero(unusual) >= _AGAIN
    graph = undistort(recorded, costs, unusual=unusual if again else None)
    again_ns = simulate(recorded).step_ns
    recorded_ns = min(again_ns, period_ns)
    timed = float(timed_ns or 0)
    if timed:
        graph = scaled_to(graph, timed)
    replayed = simulate(graph)
    step_ns = low = high = timed
    if not timed:
        step_ns = min(replayed.step_ns, recorded_ns)
        quick, patient = (simulate(slower(graph, factor)).step_ns for factor in (1 / costs.spread, costs.spread))
        low, high = (
            min(quick, step_ns * (1 - DEVICE_SPREAD)),
            max(min(patient, recorded_ns), step_ns * (1 + DEVICE_SPREAD)),
        )
    before, after = _host_work(recorded), _host_work(graph)
    return Unprofiled(
        graph=graph,
        replayed=replayed,
        step_ns=step_ns,
        low_ns=low,
        high_ns=high,
        timed=bool(timed),
        recorded_ns=recorded_ns,
        class_ns=classes_of_replay(trace, graph, replayed, step_ns, device, communicating) if device else {},
        host_scale=min(1.0, after / before) if before else 1.0,
        weighed=bool(again),
        faithful=again_ns <= _FAITHFUL * recorded_ns,
    )


def _in_run(trace: Trace, graph: StepGraph, slow: np.ndarray) -> np.ndarray:
    """Which steps of the run are slow, bool, shape (graph.steps,)."""
    host = graph.on_host
    if not slow.any() or not host.any():
        return np.zeros(graph.steps, dtype=bool)
    first = int(np.searchsorted(trace.steps.start, graph.begin[host].min(), side="right")) - 1
    return slow[max(0, first) :][: graph.steps]


def _host_work(graph: StepGraph) -> float:
    return float(graph.gap[graph.on_host].sum())


def classes_of_replay(
    trace: Trace, graph: StepGraph, replayed: Replayed, step_ns: float, device: str, communicating: np.ndarray
) -> dict[str, float]:
    """Time per class in the last round of a replay, per step, as they are told apart in the recording."""
    mine = ~graph.on_host & (graph.duration > 0)
    mine &= (trace["lanes"]["process"] == device)[trace.lane[np.maximum(graph.event, 0)]]
    rows = np.flatnonzero(mine)
    if len(rows) == 0:
        return {}
    event = graph.event[rows]
    end = np.rint(replayed.end[rows]).astype(np.int64)
    start = np.rint(replayed.end[rows] - graph.duration[rows]).astype(np.int64)
    low = round(replayed.round_start)
    high = low + round(replayed.step_ns * max(1, graph.steps))
    work_row = np.searchsorted(trace.device_work, event)
    communication = communicating[work_row]
    copying = trace.kind[event] != Kind.KERNEL
    compute_ops = ~communication & ~copying
    compute = union(start[compute_ops], end[compute_ops])
    spinning = union(start[communication], end[communication])
    copies = union(start[copying], end[copying])
    sitting = subtract(_blocking(trace, graph, replayed), spinning)
    transfer = subtract(merge(copies, sitting), compute)
    next_work = np.flatnonzero(~communication)
    launcher = graph.dependency[rows[next_work]]
    # A call that takes longer, as it loads a kernel say, holds up what it launches itself; not one that waits for it.
    call = np.maximum(graph.event[np.maximum(launcher, 0)], 0)
    waits_too = np.isin(call, graph.event[graph.on_host & (graph.own > 0)])
    takes = np.where(waits_too, LATENCY_NS, np.maximum(trace.duration[call], LATENCY_NS))
    launched = np.where(launcher >= 0, replayed.end[np.maximum(launcher, 0)] + takes, -1).astype(np.int64)
    gaps = subtract(Union(np.array([low]), np.array([max(high, low + 1)])), merge(compute, transfer))
    order = np.argsort(start[next_work], kind="stable")
    host, untold = host_part(gaps, start[next_work][order], launched[order], int(end.max()))
    of_next = np.where(launcher >= 0, graph.lane[np.maximum(launcher, 0)], -1)
    waits = waits_in_gaps(gaps, start[next_work][order], of_next[order], _waits(trace, graph, replayed))
    for_collective, for_nothing = blocked_part(intersect(gaps, host), waits, spinning)
    untold = intersect(gaps, merge(untold, for_nothing))
    host = subtract(subtract(intersect(gaps, host), for_collective), untold)
    rest = subtract(subtract(gaps, host), untold)
    of_other = graph.dependency[rows[next_work]]
    explained = (graph.second[rows[next_work]] >= 0) | ((of_other >= 0) & ~graph.on_host[np.maximum(of_other, 0)])
    held, collected, waits_for_work = held_and_collected(
        trace, subtract(rest, spinning), start[next_work][order], explained[order]
    )
    host, untold = merge(host, collected), merge(untold, held)
    sets = {
        "compute": compute,
        "transfer": transfer,
        "host": host,
        "communication": intersect(rest, spinning),
        "dependency": waits_for_work,
        "unknown": untold,
    }
    time = {name: float(clip(sets[name], low, high).total) for name in CLASSES}
    total = sum(time.values())
    return {name: value * step_ns / total for name, value in time.items()} if total else {}


def _waits(trace: Trace, graph: StepGraph, replayed: Replayed) -> dict[int, Union]:
    """When each host line sat in calls that wait for the device, in a replay."""
    calls = trace.links.names_of("wait")
    result: dict[int, Union] = {}
    for line in range(graph.host_lines):
        nodes = np.flatnonzero(graph.lane == line)
        waits = (graph.event[nodes] >= 0) & (graph.own[nodes] > 0)
        waits[waits] = calls[trace.name[graph.event[nodes[waits]]]]
        end = replayed.end[nodes]
        before = np.concatenate(([-np.inf], end[:-1]))
        # The host's own work comes first; the rest of the node is the wait.
        begin = np.where(np.isfinite(before), before + graph.gap[nodes], end) - graph.own[nodes]
        result[line] = union(np.rint(begin[waits]).astype(np.int64), np.rint(end[waits]).astype(np.int64))
    return result


def _blocking(trace: Trace, graph: StepGraph, replayed: Replayed) -> Union:
    """When the host sat in copies that block it, in a replay."""
    copies = trace.links.names_of("copy")
    waits = np.flatnonzero(graph.on_host & (graph.event >= 0) & (graph.own > 0))
    waits = waits[copies[trace.name[graph.event[waits]]]]
    work = np.maximum(graph.dependency[waits], 0)
    launch = np.where(graph.dependency[waits] >= 0, graph.dependency[work], -1)
    end = replayed.end[waits]
    called = np.where(launch >= 0, replayed.end[np.maximum(launch, 0)], end - graph.own[waits])
    began = copying_from(trace, graph.event[work], called, replayed.end[work] - graph.duration[work])
    began = np.minimum(np.where(graph.dependency[waits] >= 0, began, called), end)
    return union(np.rint(began).astype(np.int64), np.rint(end).astype(np.int64))
