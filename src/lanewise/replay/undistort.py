"""Takes off a graph what recording cost.

Recording stretches the host's work, not the device's. Three things are taken off, in this order:

1. what is known to be the profiler's: its code between two steps, its buffer requests;
2. what differs between steps that do the same: of the same stretch in all steps the lower quartile counts, as the first
   steps of a recording are slow and single ones are disturbed;
3. so much for each recorded row, and at most a share of the stretch; nothing of code in which nothing is recorded.

Waits are not scaled: they shrink because what they wait for moves. The constants come from recordings whose step was also
timed without a profiler (`benchmarks/replay/fit.py`); `docs/numbers.md` says how well they do on others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate
from lanewise.trace.intervals import covered

__all__ = [
    "COSTS",
    "FAR_SLOWER",
    "LEFT_OF_FRAMES",
    "LITTLE",
    "TYPICAL",
    "USUAL_CLOCKS",
    "Costs",
    "scaled_to",
    "slower",
    "undistort",
]

# Of the same stretch in several steps, what counts.
TYPICAL = 0.25
# A host slower by this share that makes the step longer by less than half of it is not what binds it.
LITTLE = 0.05
# A host that is slower by this factor is slower than any that was seen: what it does not lengthen, the host does not bind.
FAR_SLOWER = 1.35
# A device's clock with and without the profiler, in turns on a lent H200, differed by less than this, and mostly by less
# than the other.
_CLOCKS, USUAL_CLOCKS = 1.3, 1.1
# The timed step is met this closely, as a share of it, or after so many tries.
_REACHED, _TRIES = 1e-7, 40
# What a launch takes that loads its kernel: so long, and so many times as long as in other steps.
_LOADS_NS, _LOADS_RATIO = 1_000_000.0, 10.0
# Of a stretch full of Python frames, or that ends a step, at least this share is left.
LEFT_OF_FRAMES = 0.15


@dataclass(frozen=True)
class Costs:
    """What recording costs the host, ns.

    Attributes:
        operator, call, frame: per recorded row: operators, API calls, Python frames.
        step: per step, besides what lies between the steps.
        left: share of a stretch that is left at least; less at the end of a step, as the profiler's `step()` begins there.
        latency: share of the time from launch to start on an idle device, and of the return from a wait, that is left.
        spread: the host's work without the profiler lies within this factor of what is computed in 80 % of recordings.
    """

    operator: float = 3_900.0
    call: float = 11_000.0
    frame: float = 700.0
    step: float = 60_000.0
    left: float = 0.5
    latency: float = 0.5
    spread: float = 1.5


COSTS = Costs()
"""What was chosen on recordings of an H100 and an H200."""


def undistort(graph: StepGraph, costs: Costs = COSTS, *, unusual: np.ndarray | None = None) -> StepGraph:
    """The graph without what recording cost.

    Args:
        graph: as recorded. costs: what recording costs.
        unusual: steps of the run that take longer for reasons of their own, bool, shape (steps,).
    """
    host = graph.on_host
    work = np.maximum(graph.gap - graph.profiler, 0.0)
    work = np.where(host, _typical(graph, work, unusual, of=host), work)
    unrecorded = np.minimum(_unrecorded(graph), work)
    recorded = work = work - unrecorded
    # A frame's row is nearly all that a small Python function costs while it is recorded; an operator does more.
    work = np.where(host, np.maximum(work - graph.rows[:, 2] * costs.frame, LEFT_OF_FRAMES * work), work)
    price = graph.rows[:, 0] * costs.operator + graph.rows[:, 1] * costs.call
    ends_step = host & (graph.event < 0)
    price = price + np.where(ends_step, costs.step, 0.0)
    work = np.maximum(work - price, np.where(ends_step, LEFT_OF_FRAMES, costs.left) * work)
    gap = np.where(host, unrecorded + work, graph.gap)
    rows_left = np.where(host, work / np.maximum(recorded, 1.0), 1.0)
    # A lag behind a launch or a wait is the driver's work and the device's; one behind another stream is the device's.
    lag = np.where((graph.dependency != -1) & (graph.lag > 0), graph.lag * costs.latency, graph.lag)
    # A launch that loads its kernel holds up what it launches; the same launch of another step does not.
    often = _typical(graph, lag, unusual, of=~host)
    lag = np.where(lag > np.maximum(_LOADS_NS, _LOADS_RATIO * often), often, lag)
    return replace(
        graph, gap=gap, own=np.minimum(graph.own, gap), lag=lag, profiler=np.zeros(len(graph)), rows_left=rows_left
    )


def _unrecorded(graph: StepGraph) -> np.ndarray:
    """How much of each host node's work is code in which nothing is recorded, ns."""
    unrecorded = np.zeros(len(graph))
    for line, spans in graph.unrecorded.items():
        nodes = np.flatnonzero(graph.lane == line)
        unrecorded[nodes] = covered(spans, graph.begin[nodes], graph.end[nodes])
    return unrecorded


def scaled_to(graph: StepGraph, step_ns: float) -> StepGraph:
    """The graph with what binds its step scaled so that the step takes what was measured without a profiler.

    That is the host's work where a slower host makes the step longer, and the device's where it does not: its clock
    differed, by `_CLOCKS` at most. Where the device alone needs longer than was measured by more than that, as little host
    work is left as makes no difference.
    """

    def at(factor: float) -> float:
        return simulate(slower(graph, factor)).step_ns

    now = at(1.0)
    if abs(now / step_ns - 1) < 0.02:
        return graph
    bound_by_device = at(1 + LITTLE) < (1 + LITTLE / 2) * now
    if bound_by_device and (step_ns < USUAL_CLOCKS * now or at(FAR_SLOWER) < (1 + LITTLE) * now):
        if step_ns * _CLOCKS < now:
            return graph
        if step_ns < _CLOCKS * now:
            return replace(graph, duration=graph.duration * (step_ns / now))
    low, high = 0.02, 1e3
    target = max(step_ns, 1.01 * at(low))
    # Mostly a straight line leads there in a few tries; where it leads out of what is possible, that is halved.
    factor, before, was = target / now, 1.0, now
    for _ in range(_TRIES):
        reached = at(factor)
        if abs(reached / target - 1) < _REACHED:
            break
        low, high = (factor, high) if reached < target else (low, factor)
        straight = factor + (target - reached) * (factor - before) / (reached - was) if reached != was else 0.0
        factor, before, was = straight if low < straight < high else (low * high) ** 0.5, factor, reached
    return slower(graph, factor)


def slower(
    graph: StepGraph, factor: float, *, fixed: np.ndarray | None = None, held: np.ndarray | None = None
) -> StepGraph:
    """The graph with the host taking `factor` times as long for all it does.

    Args:
        graph: what is slowed down. factor: by what.
        fixed: host time of each node that stays as it is, such as sleep, ns, shape (nodes,); at most its gap.
        held: device operations that take as long as the host's part in them, bool, shape (nodes,).
    """
    host = graph.on_host
    stays = 0.0 if fixed is None else fixed
    return replace(
        graph,
        gap=np.where(host, stays + (graph.gap - stays) * factor, graph.gap),
        own=np.where(host, graph.own * factor, graph.own),
        duration=graph.duration if held is None else np.where(held, graph.duration * factor, graph.duration),
    )


def _typical(graph: StepGraph, work: np.ndarray, unusual: np.ndarray | None, *, of: np.ndarray) -> np.ndarray:
    """What some nodes take, with each at most what it takes in the quicker ones of the steps that do the same; an unusual
    step keeps its own."""
    if graph.steps < 2:
        return work
    chosen = np.flatnonzero(of)
    event = graph.event[chosen]
    name = np.where(event >= 0, graph.trace.name[np.maximum(event, 0)].astype(np.int64), -1)
    what = np.stack((graph.lane[chosen].astype(np.int64), name), axis=1)
    order = np.argsort(graph.step[chosen], kind="stable")
    bounds = np.searchsorted(graph.step[chosen][order], np.arange(graph.steps + 1))
    alike: defaultdict[bytes, list[np.ndarray]] = defaultdict(list)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = order[first:last]
        alike[what[mine].tobytes()].append(chosen[mine])
    result = work.copy()
    for steps in alike.values():
        if len(steps) > 1:
            nodes = np.stack(steps)
            result[nodes] = np.minimum(work[nodes], np.quantile(work[nodes], TYPICAL, axis=0))
    if unusual is not None:
        keeps = unusual[np.clip(graph.step, 0, graph.steps - 1)]
        result = np.where(keeps, work, result)
    return result
