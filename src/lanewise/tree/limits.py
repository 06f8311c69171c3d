"""A bound on the size of a tree: above it the cheapest contexts are merged, never dropped."""

from __future__ import annotations

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.tree.forest import subtree_sums, unify
from lanewise.tree.model import NodeKind, Phase, Tree, identity_keys
from lanewise.tree.rebuild import combine

__all__ = ["TRUNCATED", "limit_nodes"]

TRUNCATED = "<truncated>"


def limit_nodes(tree: Tree, most: int) -> Tree:
    """At most about `most` nodes, plus one `<truncated>` child per node that lost some.

    Contexts with device time are kept before those without, then by host time. What a merged context cost moves to the
    `<truncated>` child of the nearest kept one; leaves keep their kind of work and their phase.
    """
    if len(tree) <= most:
        return tree
    device = subtree_sums(tree.parent, tree.metrics["device"])
    host = subtree_sums(tree.parent, tree.metrics["host"])
    # Inclusive costs never grow downwards, so with the row number as the last word parents come before their children.
    order = np.lexsort((np.arange(len(tree)), -host, -device))
    kept = mask_of(len(tree), order[:most])
    kept &= _whole(tree, kept)

    strings = [*tree.strings]
    if TRUNCATED in strings:
        label = strings.index(TRUNCATED)
    else:
        label = len(strings)
        strings.append(TRUNCATED)
    # Every other node becomes the `<truncated>` child of the nearest kept node, one per kind and phase of leaf.
    near = _nearest_kept(tree.parent, kept)
    leaf = tree.leaf
    kind = np.where(kept | leaf, tree.kind, NodeKind.MARK)
    phase = np.where(kept | leaf, tree.phase, Phase.OTHER)
    name = np.where(kept, tree.name, label)
    detail = np.where(kept, tree.detail, 0)
    parent = np.where(kept, tree.parent, near)
    forward = np.where(kept & (tree.forward >= 0), np.where(kept[tree.forward], tree.forward, -1), -1)
    identity = np.unique(identity_keys(kind, phase, name, detail), return_inverse=True)[1]
    groups = unify(parent, identity, forward)
    size = len(groups.parent)
    example = np.empty(size, dtype=np.int64)
    example[groups.of[::-1]] = np.arange(len(tree))[::-1]
    result = Tree(
        parent=groups.parent, kind=kind[example], phase=phase[example], name=name[example], detail=detail[example],
        forward=groups.forward, strings=strings, metrics=combine(tree.metrics, groups.of, size), info=tree.info,
    )  # fmt: skip
    return result.with_info(truncated=tree.info.truncated + int(np.count_nonzero(~kept)))


def _whole(tree: Tree, kept: np.ndarray) -> np.ndarray:
    """Which nodes have only kept nodes above them."""
    missing = np.where(kept, 0, 1)
    total = missing.copy()
    parent = tree.parent
    at = parent.copy()
    while (at >= 0).any():
        live = at >= 0
        total[live] += missing[at[live]]
        at[live] = parent[at[live]]
    return total == 0


def _nearest_kept(parent: np.ndarray, kept: np.ndarray) -> np.ndarray:
    at = parent.copy()
    while True:
        climb = (at >= 0) & ~kept[np.maximum(at, 0)]
        if not climb.any():
            return at
        at[climb] = parent[at[climb]]
