"""Takes off a graph what recording cost.

Recording stretches the host's work, not the device's. Three things are taken off, in this order:

1. what is known to be the profiler's: its code between two steps, its buffer requests;
2. what differs between steps that do the same: of the same stretch in all steps the lower quartile counts, as the first
   steps of a recording are slow and single ones are disturbed;
3. so much for each recorded row, and at most a share of the stretch.

Waits are not scaled: they shrink because what they wait for moves. The constants are fitted to recordings whose step was
also timed without a profiler (`benchmarks/replay/fit.py`); `docs/numbers.md` says how well they do on others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate

__all__ = ["COSTS", "Costs", "scaled_to", "slower", "undistort"]

# Of the same stretch in several steps, what counts.
_TYPICAL = 0.25

# A step that differs by less is the same step; one that the device binds differs by so much with its clock.
_SAME, _OTHER_CLOCK = 0.02, 0.1

# Of a stretch full of Python frames at least this share is left.
_LEFT_OF_FRAMES = 0.15


@dataclass(frozen=True)
class Costs:
    """What recording costs the host, ns.

    Attributes:
        operator, call, frame: per recorded row: operators, API calls, Python frames.
        step: per step, besides what lies between the steps.
        left: share of a stretch that is left at least.
        latency: share of the time from launch to start on an idle device, and of the return from a wait, that is left.
        spread: the host's work without the profiler lies within this factor of what is computed in 80 % of recordings.
    """

    operator: float = 3_900.0
    call: float = 11_000.0
    frame: float = 700.0
    step: float = 60_000.0
    left: float = 0.5
    latency: float = 0.5
    spread: float = 1.35


COSTS = Costs()
"""Fitted constants."""


def undistort(graph: StepGraph, costs: Costs = COSTS, *, unusual: np.ndarray | None = None) -> StepGraph:
    """The graph without what recording cost.

    Args:
        graph: as recorded. costs: what recording costs.
        unusual: steps of the run that take longer for reasons of their own, bool, shape (steps,).
    """
    host = graph.on_host
    work = np.maximum(graph.gap - graph.profiler, 0.0)
    work = np.where(host, _typical(graph, work, unusual), work)
    # A frame's row is nearly all that a small Python function costs while it is recorded; an operator does more.
    work = np.where(host, np.maximum(work - graph.rows[:, 2] * costs.frame, _LEFT_OF_FRAMES * work), work)
    price = graph.rows[:, 0] * costs.operator + graph.rows[:, 1] * costs.call
    price = price + np.where(host & (graph.event < 0), costs.step, 0.0)
    gap = np.where(host, np.maximum(work - price, costs.left * work), graph.gap)
    # A lag behind a launch or a wait is the driver's work and the device's; one behind another stream is the device's.
    lag = np.where((graph.dependency != -1) & (graph.lag > 0), graph.lag * costs.latency, graph.lag)
    return replace(graph, gap=gap, own=np.minimum(graph.own, gap), lag=lag, profiler=np.zeros(len(graph)))


def scaled_to(graph: StepGraph, step_ns: float) -> StepGraph:
    """The graph with its host work scaled so that a step takes what was measured without a profiler.

    Where the device alone needs longer, as little host work is left as makes no difference; where the device binds the step
    whatever the host does, the host's work stays as it is.
    """

    def at(factor: float) -> float:
        return simulate(slower(graph, factor)).step_ns

    low, high = 0.02, 1e3
    target, now = max(step_ns, 1.01 * at(low)), at(1.0)
    off = abs(now / target - 1)
    # A host twice as quick would change nothing: it was the device that ran at another clock, not the host.
    if off < _SAME or (off < _OTHER_CLOCK and at(0.5) > (1 - _SAME) * now):
        return graph
    for _ in range(24):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if at(middle) < target else (low, middle)
    return slower(graph, (low * high) ** 0.5)


def slower(graph: StepGraph, factor: float) -> StepGraph:
    """The graph with the host taking `factor` times as long for all it does."""
    host = graph.on_host
    return replace(
        graph, gap=np.where(host, graph.gap * factor, graph.gap), own=np.where(host, graph.own * factor, graph.own)
    )


def _typical(graph: StepGraph, work: np.ndarray, unusual: np.ndarray | None) -> np.ndarray:
    """Host work with each stretch at most what it takes in the quicker ones of the steps that do the same; an unusual step
    keeps its own."""
    if graph.steps < 2:
        return work
    host = np.flatnonzero(graph.on_host)
    event = graph.event[host]
    name = np.where(event >= 0, graph.trace.name[np.maximum(event, 0)].astype(np.int64), -1)
    what = np.stack((graph.lane[host].astype(np.int64), name), axis=1)
    order = np.argsort(graph.step[host], kind="stable")
    bounds = np.searchsorted(graph.step[host][order], np.arange(graph.steps + 1))
    alike: defaultdict[bytes, list[np.ndarray]] = defaultdict(list)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = order[first:last]
        alike[what[mine].tobytes()].append(host[mine])
    result = work.copy()
    for steps in alike.values():
        if len(steps) > 1:
            nodes = np.stack(steps)
            result[nodes] = np.minimum(work[nodes], np.quantile(work[nodes], _TYPICAL, axis=0))
    if unusual is not None:
        keeps = unusual[np.clip(graph.step, 0, graph.steps - 1)]
        result = np.where(keeps, work, result)
    return result
