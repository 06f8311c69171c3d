"""Forests as parent arrays: depths, subtree sums, and merging rows that mean the same.

A forest of n rows is an array `parent` with the row of each row's parent, or -1. Nothing here loops over rows: trees of
a million events must become trees of a thousand nodes in well under a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["Groups", "climb", "depths", "levels", "nearest_marked", "preorder", "subtree_sums", "unify"]


def climb(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Depth of every row and the root above it (itself for a root). The parents must not form a cycle.

    Pointer doubling: each pass doubles how far every row has climbed, so a depth of 100 takes 7 passes.
    """
    here = np.arange(len(parent), dtype=np.int64)
    root = np.where(parent >= 0, parent, here)
    depth = (parent >= 0).astype(np.int32)
    while True:
        further = root[root]
        if np.array_equal(further, root):
            return depth, root
        depth += depth[root]
        root = further


def depths(parent: np.ndarray) -> np.ndarray:
    """Number of rows above each row."""
    return climb(parent)[0]


def nearest_marked(parent: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """The nearest marked row at or above each row, or -1."""
    here = np.arange(len(parent), dtype=np.int64)
    stop = marked | (parent < 0)
    at = climb(np.where(stop, -1, parent))[1]
    return np.where(marked[at], at, -1) if len(here) else here


def levels(depth: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each depth, the roots first; rows of one depth in their own order."""
    if len(depth) == 0:
        return
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2))
    for level in range(len(bounds) - 1):
        yield order[bounds[level] : bounds[level + 1]]


def subtree_sums(parent: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum of `values` (shape (n,) or (n, m)) over each row's subtree, itself included."""
    total = values.copy()
    for rows in reversed(list(levels(depths(parent)))[1:]):
        np.add.at(total, parent[rows], total[rows])
    return total


def preorder(parent: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Rows in depth-first order, siblings by descending `key`, then by row."""
    n = len(parent)
    if n == 0:
        return np.empty(0, dtype=np.int64)
    size = subtree_sums(parent, np.ones(n, dtype=np.int64))
    by_family = np.lexsort((np.arange(n), -key, parent))
    # Position of a row = that of its parent + 1 + the sizes of the siblings before it.
    sizes = size[by_family]
    before = np.cumsum(sizes) - sizes
    families = parent[by_family]
    first = np.concatenate(([True], families[1:] != families[:-1]))
    before -= np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), n)))
    offset = np.empty(n, dtype=np.int64)
    offset[by_family] = before
    position = offset.copy()
    for rows in list(levels(depths(parent)))[1:]:
        position[rows] += position[parent[rows]] + 1
    order = np.empty(n, dtype=np.int64)
    order[position] = np.arange(n)
    return order


class Groups(NamedTuple):
    """Rows merged into groups.

    Attributes:
        of: group of each row, shape (n,).
        parent, identity, forward: of each group; parent and forward are groups, or -1. A group comes after its parent
            and after its forward group.
    """

    of: np.ndarray
    parent: np.ndarray
    identity: np.ndarray
    forward: np.ndarray


def unify(parent: np.ndarray, identity: np.ndarray, forward: np.ndarray | None = None) -> Groups:
    """Merge rows whose parents are merged and whose identity is equal.

    Args:
        parent: the forest, shape (n,).
        identity: what a row is, 0 to 2**31 - 1, shape (n,).
        forward: a row in whose context a row also stands, or -1, shape (n,): the forward operator of a backward one.
            Rows are merged only if these are merged as well.

    No row may depend on itself through parents and forwards.
    """
    n = len(parent)
    forward = np.full(n, -1, dtype=np.int64) if forward is None else forward
    group = np.full(n, -1, dtype=np.int64)
    parents: list[np.ndarray] = []
    identities: list[np.ndarray] = []
    forwards: list[np.ndarray] = []
    made = 0
    for rows in _dependency_levels(parent, forward):
        above = np.where(parent[rows] >= 0, group[parent[rows]], -1)
        beside = np.where(forward[rows] >= 0, group[forward[rows]], -1)
        first, inverse = _distinct(above, identity[rows], beside)
        group[rows] = made + inverse
        made += len(first)
        parents.append(above[first])
        identities.append(identity[rows[first]])
        forwards.append(beside[first])
    return Groups(group, _joined(parents), _joined(identities), _joined(forwards))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)


def _distinct(above: np.ndarray, identity: np.ndarray, beside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row of each distinct triple, and the triple of each row, ordered by (above, identity, beside)."""
    key = (above.astype(np.int64) + 1 << 32) | identity.astype(np.int64)
    if (beside >= 0).any():
        key = np.unique(key, return_inverse=True)[1].astype(np.int64) << 32 | (beside.astype(np.int64) + 1)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse


def _dependency_levels(parent: np.ndarray, forward: np.ndarray) -> Iterator[np.ndarray]:
    """Rows in batches such that every parent and every forward row lies in an earlier batch.

    Rows with a forward row start a subtree of their own; the generation of a subtree is one more than those that it
    depends on. Recomputation inside a backward pass makes a second generation, rarely a third.
    """
    n = len(parent)
    if n == 0:
        return
    starts = forward >= 0
    depth, top = climb(np.where(starts, -1, parent))
    generation = np.zeros(n, dtype=np.int64)
    anchors = np.flatnonzero(starts)
    if len(anchors):
        around = np.where(parent[anchors] >= 0, top[parent[anchors]], -1)
        ahead = top[forward[anchors]]
        for _ in range(len(anchors) + 1):
            needed = 1 + np.maximum(generation[ahead], np.where(around >= 0, generation[around], 0))
            if np.array_equal(needed, generation[anchors]):
                break
            generation[anchors] = needed
        else:
            raise ValueError("a row depends on itself")
        generation = generation[top]
    rank = generation * (int(depth.max()) + 1) + depth
    order = np.argsort(rank, kind="stable")
    ranks = rank[order]
    bounds = np.flatnonzero(np.concatenate(([True], ranks[1:] != ranks[:-1], [True])))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield order[begin:end]
