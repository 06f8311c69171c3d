"""The job without what a late rank does more: that rank's step replayed with and without it.

In a job that goes in step, every rank's step is that of the late one. So what the job gains is what the late rank's own
step gains. What it does while its device is busy anyway gives nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.distributed.late_ranks import Late
from lanewise.measure.distributed.own_work import Context, OwnWork, device_contexts, own_work
from lanewise.replay.simulate import simulate
from lanewise.replay.undistort import undistort

__all__ = ["delay_of"]


def delay_of(core: Core, late: Late, host_factor: float) -> tuple[float, float]:
    """The step of a late rank by itself, and how much of it goes with what the rank does more; ns.

    Args:
        core: the late rank. late: what it does more.
        host_factor: how much slower its host was while it was recorded than the others'.
    """
    work = own_work(core)
    if not len(core.trace.device_work):
        # Without a device there is one line of work, and each of its parts counts.
        return float(np.median(work.time.sum(axis=1))), late.more_ns
    share = {context: one.more_ns / one.mine_ns for one in late.excess for context in one.members}
    graph = undistort(core.graph)
    duration = graph.duration.copy()
    nodes = np.flatnonzero(~graph.on_host & (graph.event >= 0))
    event = graph.event[nodes]
    communication = core.is_family("communication")[np.searchsorted(core.trace.device_work, event)]
    duration[nodes[communication]] = 0.0
    left = np.ones(len(graph))
    own, mine = nodes[~communication], event[~communication]
    left[own] = [1.0 - share.get(one, 0.0) for one in device_contexts(core, mine)]
    # What is the rank's own is as long as it is said to be: many recorded frames in it make the graph think less of it.
    held = np.minimum(_of_held(core, mine, 1.0 - left[own]), graph.gap)
    removed = _of_nodes(core, work, share) + held
    even = np.where(graph.on_host, np.maximum(graph.gap - removed, 0.0) / host_factor, graph.gap)
    before = simulate(replace(graph, gap=even + removed, duration=duration)).step_ns
    after = simulate(replace(graph, gap=even, duration=duration * left)).step_ns
    return before, max(0.0, before - after)


def _of_held(core: Core, event: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Host time of each node that goes with device work, ns: of calls that hold the host until it is over, as copies from
    pageable memory do.

    Args:
        core: the rank. event: device operations. gone: which share of each goes.
    """
    graph, trace = core.graph, core.trace
    call = trace.links.launch[np.searchsorted(trace.device_work, event)]
    held = (call >= 0) & (gone > 0) & core.host.waiting[np.maximum(call, 0)]
    share = np.zeros(len(trace))
    share[call[held]] = gone[held]
    result = np.zeros(len(graph))
    nodes = np.flatnonzero(graph.on_host & (graph.event >= 0))
    result[nodes] = share[graph.event[nodes]] * trace.duration[graph.event[nodes]]
    return result


def _of_nodes(core: Core, work: OwnWork, share: Mapping[Context, float]) -> np.ndarray:
    """Host time of each node that goes, ns."""
    graph = core.graph
    gone = np.array([share.get(context, 0.0) for context in work.contexts])
    result = np.zeros(len(graph))
    for pieces in work.pieces:
        nodes = np.flatnonzero(graph.lane == pieces.line)
        at = np.searchsorted(graph.begin[nodes], pieces.start, side="right") - 1
        inside = at >= 0
        np.add.at(result, nodes[at[inside]], (pieces.spent * gone[pieces.context])[inside])
    return result
