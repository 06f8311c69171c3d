"""What a replayed step is bound by: the chain of waits from its end back to its beginning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import Replayed

__all__ = ["Binding", "binding"]


class Binding(NamedTuple):
    """The nodes that the end of a replay waited for, the last one first.

    Attributes:
        node: nodes on the chain.
        work: time of each node's own work on it: device time, or the host's work, ns.
        wait: time between what the node waited for and its work: a launch's latency, a pause, the return from a wait; ns.
    """

    node: np.ndarray
    work: np.ndarray
    wait: np.ndarray


def binding(graph: StepGraph, replayed: Replayed) -> Binding:
    """Walk back from the end of the last round of a replay to its beginning."""
    if len(graph) == 0:
        return Binding(np.empty(0, np.int64), np.empty(0), np.empty(0))
    order = np.argsort(graph.lane, kind="stable")
    before = np.full(len(graph), -1, dtype=np.int64)
    same = graph.lane[order][1:] == graph.lane[order][:-1]
    before[order[1:]] = np.where(same, order[:-1], -1)
    end, host = replayed.end, graph.on_host
    nodes: list[int] = []
    works: list[float] = []
    waits: list[float] = []
    at = int(np.argmax(end))
    while at >= 0 and end[at] > replayed.round_start:
        # On a lane the gap before a node is the host's own work, or a pause of the device.
        options = [(float(end[before[at]] + graph.gap[at]) if before[at] >= 0 else -np.inf, int(before[at]))]
        for other, lag in (
            (int(graph.dependency[at]), float(graph.lag[at])),
            (int(graph.second[at]), float(graph.second_lag[at])),
        ):
            if other >= 0:
                options.append((float(end[other]) + lag, other))
        start, came = max(options)
        if not np.isfinite(start):
            came = -1
        since = max(float(end[came]) if came >= 0 else replayed.round_start, replayed.round_start)
        whole = max(0.0, float(end[at]) - since)
        own = min(whole, float(graph.gap[at]) if host[at] and came == before[at] else float(graph.duration[at]))
        nodes.append(at)
        works.append(own)
        waits.append(whole - own)
        at = came
    return Binding(np.array(nodes, dtype=np.int64), np.array(works), np.array(waits))
