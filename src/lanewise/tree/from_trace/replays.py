"""Device work that CUDA graphs replay, at the places that it was captured from.

In a trace it hangs on the launch of the graph. Where the recorder looked on while the graph was captured, each node's place
is known: its module, function and operator, which have cost nothing on the host since. Nodes are found in a replay by their
order and the names of their kernels.
"""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.errors import InputError
from lanewise.trace.file.captured_graphs import COPY, KERNEL, SET, CapturedGraphs
from lanewise.trace.metadata import from_metadata
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import loads

__all__ = ["PLACE", "Replays", "find_replays"]

PLACE = "place "
"""Begins the name of the leaf that stands for a place in a tree of captured contexts."""

_KIND: dict[int, int] = {Kind.KERNEL: KERNEL, Kind.MEMCPY: COPY, Kind.MEMSET: SET}
_ALIKE = 0.9
"""Of the nodes of a graph, to be found in a replay, or it is one of another graph."""

Key = tuple[int, str]
"""Kind and name of a node; copies and sets have none."""

_UNKNOWN: Key = (KERNEL, "")
"""A node of which the driver told nothing when it was captured, as of those that set memory: any op may be its replay."""


@dataclass(frozen=True, eq=False)
class Replays:
    """Where replayed work belongs.

    Attributes:
        tree: the contexts that were captured from.
        node: of each device op the node of `tree` that it stands below, or -1, shape (device,).
    """

    tree: Tree
    node: np.ndarray


def find_replays(trace: Trace) -> Replays | None:
    """None where the trace replays nothing, or nothing is known of it."""
    links = trace.links
    if not links.graph_nodes.any():
        return None
    recorded = from_metadata(trace.metadata)
    if recorded is None or recorded.graphs is None or (tree := _tree(recorded.graphs)) is None:
        return None
    graphs = _Graphs(recorded.graphs, tree)
    rows = np.flatnonzero(links.graph_nodes)
    rows = rows[np.lexsort((trace.start[trace.device_work[rows]], links.launch[rows]))]
    calls, first = np.unique(links.launch[rows], return_index=True)
    in_order = np.argsort(trace.start[calls], kind="stable")
    known = recorded.graphs.replays if len(recorded.graphs.replays) == len(calls) else [-1] * len(calls)
    ends = np.append(first[1:], len(rows))
    node = np.full(len(trace.device_work), -1, dtype=np.int64)
    for at, graph in zip(in_order.tolist(), known, strict=True):
        ops = rows[first[at] : ends[at]]
        node[ops] = graphs.places([_key(trace, int(op)) for op in trace.device_work[ops].tolist()], graph)
    return Replays(tree, node) if (node >= 0).any() else None


def _tree(graphs: CapturedGraphs) -> Tree | None:
    try:
        return loads(base64.b64decode(graphs.tree, validate=True))
    except (InputError, binascii.Error, ValueError):
        return None


def _key(trace: Trace, event: int) -> Key:
    kind = _KIND.get(int(trace.kind[event]), KERNEL)
    return kind, trace.names[int(trace.name[event])] if kind == KERNEL else ""


class _Graphs:
    """Graphs as sequences of nodes, each with the node of the tree that it stands below."""

    def __init__(self, graphs: CapturedGraphs, tree: Tree) -> None:
        below = {
            int(tree.label(leaf).removeprefix(PLACE)): int(tree.parent[leaf])
            for leaf in range(len(tree))
            if tree.label(leaf).startswith(PLACE) and tree.label(leaf).removeprefix(PLACE).isdecimal()
        }
        self._nodes: list[tuple[list[Key], list[int]]] = [
            (
                [(kind, graphs.kernels[name] if kind == KERNEL and name >= 0 else "") for kind, name, _ in graph],
                [below.get(place, -1) for _, _, place in graph],
            )
            for graph in graphs.graphs
        ]
        self._found: dict[tuple[Key, ...], list[int]] = {}

    def places(self, keys: Sequence[Key], graph: int) -> list[int]:
        """Of each op of a replay the node that it stands below, or -1.

        Args:
            keys: the ops in the order of their start. graph: which one was launched, -1 if that is unknown.
        """
        if graph >= 0:
            return _aligned(*self._nodes[graph], keys) or [-1] * len(keys)
        key = tuple(keys)
        if key not in self._found:
            # Several may look the same: then nobody can tell which one it was.
            candidates = {tuple(found) for nodes in self._nodes if (found := _aligned(*nodes, keys))}
            self._found[key] = list(candidates.pop()) if len(candidates) == 1 else [-1] * len(keys)
        return self._found[key]


def _aligned(captured: Sequence[Key], places: Sequence[int], replayed: Sequence[Key]) -> list[int]:
    """The place of each op; empty if this is a replay of another graph."""
    if len(captured) == len(replayed) and all(
        key in (_UNKNOWN, op) for key, op in zip(captured, replayed, strict=True)
    ):
        return list(places)
    # Branches run side by side: within one name the order is as good as any.
    of_key: dict[Key, deque[int]] = defaultdict(deque)
    for key, place in zip(captured, places, strict=True):
        of_key[key].append(place)
    found: list[int] = []
    for key in replayed:
        left = of_key[key] or of_key[_UNKNOWN]
        found.append(left.popleft() if left else -1)
    known = len(captured) - sum(map(len, of_key.values()))
    return found if known >= _ALIKE * max(len(captured), len(replayed)) else []
