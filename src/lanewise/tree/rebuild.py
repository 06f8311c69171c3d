"""The one operation behind every view: give nodes other parents, leave some out, and merge what has become equal.

Nothing is lost: what a left-out node cost goes to the nearest node above it that stays, so sums are the same before and
after. Only `calls` of left-out nodes is dropped, because entering an inner context is not entering the outer one again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lanewise.tree.forest import nearest_marked, subtree_sums, unify
from lanewise.tree.model import COMBINE, METRICS, Tree, identity_keys

__all__ = ["combine", "drop_empty", "identities", "rebuild", "with_metrics"]


def identities(tree: Tree) -> np.ndarray:
    """A number for each distinct (kind, phase, name, detail) of a tree, in that order. Shape (nodes,)."""
    return np.unique(identity_keys(tree.kind, tree.phase, tree.name, tree.detail), return_inverse=True)[1]


def combine(metrics: Mapping[str, np.ndarray], group: np.ndarray, size: int) -> dict[str, np.ndarray]:
    """Metrics of merged nodes.

    Args:
        metrics: columns of `METRICS`, shape (n,).
        group: group of each node, or -1 for a node that contributes nothing, shape (n,).
        size: number of groups.
    """
    chosen = group >= 0
    at = group[chosen]
    result: dict[str, np.ndarray] = {}
    for name in METRICS:
        values = metrics[name][chosen]
        if name in COMBINE:
            filled = metrics["count"][chosen] > 0
            if COMBINE[name] == "min":
                best = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
                np.minimum.at(best, at[filled], values[filled])
                best[best == np.iinfo(np.int64).max] = 0
            else:
                best = np.zeros(size, dtype=np.int64)
                np.maximum.at(best, at[filled], values[filled])
            result[name] = best
        else:
            total = np.zeros(size, dtype=values.dtype)
            np.add.at(total, at, values)
            result[name] = total
    return result


def rebuild(
    tree: Tree,
    *,
    parent: np.ndarray | None = None,
    leave_out: np.ndarray | None = None,
    keep_forward: bool = False,
) -> Tree:
    """A tree with other parents and without some nodes.

    Args:
        tree: the tree.
        parent: new parent of each node, or -1; the old ones by default. No cycles.
        leave_out: nodes to leave out; a root stays even if it is named here.
        keep_forward: keep the link from backward operators to their forward operators. Nodes that differ only there
            are merged otherwise.
    """
    parent = tree.parent if parent is None else parent
    kept = np.ones(len(tree), dtype=bool) if leave_out is None else ~leave_out | (parent < 0)
    target = nearest_marked(parent, kept)
    rows = np.flatnonzero(kept)
    index = np.full(len(tree), -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    above = parent[rows]
    above = np.where(above >= 0, index[target[above]], -1)
    forward = None
    if keep_forward:
        link = tree.forward[rows]
        forward = np.where(link >= 0, index[target[link]], -1)
    identity = identities(tree)[rows]
    groups = unify(above, identity, forward)
    size = len(groups.parent)
    group = groups.of[index[target]] if len(tree) else target
    metrics = combine(tree.metrics, group, size)
    calls = np.zeros(size, dtype=np.int64)
    np.add.at(calls, groups.of, tree.metrics["calls"][rows])
    metrics["calls"] = calls
    example = np.empty(size, dtype=np.int64)
    example[groups.of] = rows
    return Tree(
        parent=groups.parent, kind=tree.kind[example], phase=tree.phase[example], name=tree.name[example],
        detail=tree.detail[example], forward=groups.forward, strings=tree.strings, metrics=metrics, info=tree.info,
    )  # fmt: skip


def with_metrics(tree: Tree, counts: np.ndarray) -> Tree:
    """The same tree, where only the costs of some nodes count (bool, shape (nodes,))."""
    return Tree(
        parent=tree.parent, kind=tree.kind, phase=tree.phase, name=tree.name, detail=tree.detail, forward=tree.forward,
        strings=tree.strings, info=tree.info,
        metrics={name: np.where(counts, values, np.zeros(1, values.dtype)) for name, values in tree.metrics.items()},
    )  # fmt: skip


def drop_empty(tree: Tree) -> Tree:
    """Without the nodes in whose subtree nothing was counted; a forward operator that is linked to stays."""
    seen = np.zeros(len(tree), dtype=np.int64)
    for name, values in tree.metrics.items():
        # In a difference the extremes are those of one side: they say nothing about whether anything changed.
        if name not in COMBINE:
            seen |= values != 0
    full = subtree_sums(tree.parent, seen) > 0
    # Links point to earlier nodes, so going backwards once is enough even where they form chains.
    linked = np.flatnonzero(tree.forward >= 0)
    if not full.all() and len(linked):
        for node in linked[::-1].tolist():
            if full[node]:
                at = int(tree.forward[node])
                while at >= 0 and not full[at]:
                    full[at] = True
                    at = int(tree.parent[at])
    if full.all():
        return tree
    rows = np.flatnonzero(full)
    index = np.full(len(tree), -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    return Tree(
        parent=np.where(tree.parent[rows] >= 0, index[tree.parent[rows]], -1), kind=tree.kind[rows],
        phase=tree.phase[rows], name=tree.name[rows], detail=tree.detail[rows],
        forward=np.where(tree.forward[rows] >= 0, index[tree.forward[rows]], -1), strings=tree.strings,
        metrics={name: values[rows] for name, values in tree.metrics.items()}, info=tree.info,
    )  # fmt: skip
