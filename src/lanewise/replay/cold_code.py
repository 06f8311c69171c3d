"""What a long pause of the host costs beside its own time: the code behind it runs slowly at first.

While the host sleeps, collects garbage or copies a model, other data fills its caches, and its clock falls. The operators
behind that take up to twenty times as long as the same ones later in the step (a collection of 150 ms on an H200's host:
254 and 83 us instead of 16 and 7). Where the pause goes, they take what the others take.
"""

from __future__ import annotations

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.trace.intervals import Union, covered

__all__ = ["warm"]

# A pause that goes is long enough to leave the host cold from here on, ns.
_PAUSE_NS = 500_000.0
# Of a pause little is recorded: a loop of short operators keeps their code warm.
_OF_A_ROW_NS = 50_000.0
# So many nodes of a step that end with the same call tell what one usually takes.
_OTHERS = 3


def warm(graph: StepGraph, work: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The host's work where pauses are gone: what follows one takes no longer than the others of its kind.

    Args:
        graph: the run before a change. work: host work of each node after it, ns. own: the same of the calls that wait.
    """
    gone = np.where(graph.on_host, graph.gap - work - own, 0.0)
    rows = graph.rows[:, :2].sum(axis=1)
    paused = np.where((gone >= 0.5 * graph.gap) & (gone >= _OF_A_ROW_NS * rows), gone, 0.0)
    if paused.sum() < _PAUSE_NS:
        return work
    result = work.copy()
    for line in range(graph.host_lines):
        nodes = np.flatnonzero(graph.lane == line)
        cold = _behind_pauses(paused[nodes], gone[nodes] >= 0.5 * graph.gap[nodes])
        if cold.any():
            usual = _usual(graph, nodes, work[nodes], np.maximum(rows[nodes], 1))
            spans = graph.unrecorded.get(line, Union.empty())
            unrecorded = covered(spans, graph.begin[nodes], graph.end[nodes])
            result[nodes] = _as_usual(work[nodes], usual, unrecorded, cold)
    return result


def _behind_pauses(paused: np.ndarray, mostly: np.ndarray) -> np.ndarray:
    """Which nodes end a pause: the last of a row of nodes of which mostly nothing is left."""
    total = np.cumsum(np.where(mostly, paused, 0.0))
    before = np.maximum.accumulate(np.where(mostly, 0.0, total))
    return mostly & ~np.append(mostly[1:], False) & (total - before >= _PAUSE_NS)


def _usual(graph: StepGraph, nodes: np.ndarray, work: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What each node takes if its rows take as long as those of most that end with the same call; infinite where few do."""
    event = graph.event[nodes]
    name = np.where(event >= 0, graph.trace.name[np.maximum(event, 0)].astype(np.int64), -1)
    usual = np.full(len(nodes), np.inf)
    for one in np.unique(name).tolist():
        alike = name == one
        if np.count_nonzero(alike) >= _OTHERS * graph.steps:
            usual[alike] = np.median(work[alike] / rows[alike]) * rows[alike]
    return usual


def _as_usual(work: np.ndarray, usual: np.ndarray, unrecorded: np.ndarray, cold: np.ndarray) -> np.ndarray:
    """Work in which what follows a pause takes what is usual, up to the first node that does so already. Code in which
    nothing is recorded stays, as nothing is known of it."""
    result = work.copy()
    count = len(work)
    for at in np.flatnonzero(cold).tolist():
        result[at] = min(result[at], usual[at])
        for following in range(at + 1, at + count):
            node = following % count
            most = usual[node] + unrecorded[node]
            if work[node] <= most < np.inf:
                break
            result[node] = min(work[node], most)
    return result
