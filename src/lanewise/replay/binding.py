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
    end = replayed.end
    came = _waited_for(graph, end, before)
    nodes: list[int] = []
    following, begun = came.tolist(), end > replayed.round_start
    at = int(np.argmax(end))
    while at >= 0 and begun[at]:
        nodes.append(at)
        at = following[at]
    node = np.array(nodes, dtype=np.int64)
    came, before = came[node], before[node]
    since = np.maximum(np.where(came >= 0, end[came], replayed.round_start), replayed.round_start)
    whole = np.maximum(0.0, end[node] - since)
    by_gap = graph.on_host[node] & (came == before)
    own = np.minimum(whole, np.where(by_gap, graph.gap[node], graph.duration[node]))
    return Binding(node, own, whole - own)


def _waited_for(graph: StepGraph, end: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The node that each node waited for: of those that it depends on the last to end, -1 for none.

    Args:
        end: of each node, ns. before: the node before it on its lane, -1 for none.
    """
    # On a lane the gap before a node is the host's own work, or a pause of the device.
    others = [(before, graph.gap), (graph.dependency, graph.lag), (graph.second, graph.second_lag)]
    ready = np.array([np.where(other >= 0, end[other] + lag, -np.inf) for other, lag in others])
    last = ready.max(axis=0)
    came = np.array([np.where(ready[row] == last, other, -1) for row, (other, _) in enumerate(others)]).max(axis=0)
    return np.where(np.isfinite(last), came, -1)
