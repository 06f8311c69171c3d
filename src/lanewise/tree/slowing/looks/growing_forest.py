"""Contexts of all threads as one forest that only grows: equal contexts of several threads are one node.

Rows of threads come as the native collector numbers them, parents before children; what is known of a row stays, so that
each row is looked at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.tree.forest import preorder, subtree_sums

__all__ = ["GrowingForest", "RawThread", "padded"]


_ALL = slice(None)


def padded(values: np.ndarray, nodes: int) -> np.ndarray:
    """Values by node, for so many: those that were new later have 0."""
    return np.concatenate((values, np.zeros(nodes - len(values)))) if len(values) < nodes else values


class RawThread(NamedTuple):
    """Contexts of one thread; row 0 is the thread itself and its own parent.

    `forward` is 0, or (number + 1) << 32 | row of the forward operator of backward work.
    """

    number: int
    parent: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    forward: np.ndarray


class GrowingForest:
    """Nodes so far.

    Attributes:
        kind, name: of each node, as the collector numbers them.
    """

    def __init__(self) -> None:
        self.kind: list[int] = []
        self.name: list[int] = []
        self._parent: list[int] = []
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._rows_of: dict[int, list[int]] = {}
        self._nodes: dict[int, np.ndarray] = {}
        self._order = np.empty(0, dtype=np.int64)
        self._begin = np.empty(0, dtype=np.int64)
        self._end = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def parent(self) -> list[int]:
        """Parent of each node, or -1."""
        return self._parent

    def nodes_of(self, index: int, rows: int) -> np.ndarray | None:
        """Node of each row of a thread, if so many are known."""
        nodes = self._nodes.get(index)
        return nodes if nodes is not None and len(nodes) == rows else None

    def learn(self, thread: RawThread) -> None:
        """The rows of a thread that are new; all of them where another thread has taken its number."""
        known = self._rows_of.setdefault(thread.number, [])
        if len(known) > len(thread.parent) or any(
            self.name[known[row]] != int(thread.name[row]) for row in (0, len(known) - 1) if known
        ):
            known.clear()
        for row in range(len(known), len(thread.parent)):
            parent = known[int(thread.parent[row])] if row else -1
            beside = self._forward(int(thread.forward[row]))
            known.append(self._node(parent, int(thread.kind[row]), int(thread.name[row]), beside))
        self._nodes[thread.number] = np.array(known, dtype=np.int64)

    def below(self, reference: int, kind: int, name: int, detail: int) -> int:
        """The node of device work in the context of a reference, made on first sight; -1 where that is unknown."""
        parent = self._forward(reference)
        if parent < 0:
            return -1
        return self._node(parent, kind, name, -2 - detail)

    def inclusive(self, own: np.ndarray, of: np.ndarray | slice = _ALL) -> np.ndarray:
        """Sums over subtrees, shape (..., nodes) as `own`, or of some nodes."""
        self._arrange()
        total = np.zeros((*own.shape[:-1], own.shape[-1] + 1))
        np.cumsum(own[..., self._order], axis=-1, out=total[..., 1:])
        return total[..., self._end[of]] - total[..., self._begin[of]]

    def inside(self, node: int) -> np.ndarray:
        """Which nodes are in a subtree, its root among them; bool, shape (nodes,)."""
        self._arrange()
        return (self._begin >= self._begin[node]) & (self._begin < self._end[node])

    def _arrange(self) -> None:
        """Where each subtree begins and ends in the order of a walk."""
        if len(self._order) != len(self):
            parent = np.array(self._parent, dtype=np.int64)
            self._order = preorder(parent, np.zeros(len(parent)))
            self._begin = np.empty(len(parent), dtype=np.int64)
            self._begin[self._order] = np.arange(len(parent))
            self._end = self._begin + subtree_sums(parent, np.ones(len(parent), dtype=np.int64))

    def children(self, node: int) -> list[int]:
        """Nodes directly below one."""
        return [child for child, parent in enumerate(self._parent) if parent == node]

    def _node(self, parent: int, kind: int, name: int, beside: int) -> int:
        key = (parent, kind, name, beside)
        node = self._known.get(key, -1)
        if node < 0:
            node = self._known[key] = len(self.kind)
            self.kind.append(kind)
            self.name.append(name)
            self._parent.append(parent)
        return node

    def _forward(self, reference: int) -> int:
        if not reference:
            return -1
        rows = self._rows_of.get((reference >> 32) - 1, [])
        row = reference & 0xFFFFFFFF
        return rows[row] if row < len(rows) else -1
