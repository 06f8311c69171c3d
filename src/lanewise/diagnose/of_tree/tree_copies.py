"""Copies between host and device in a tree, and those that the host waits for to read a value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.readbacks import DATA_DEPENDENT, SMALL_BYTES, WRAPPERS
from lanewise.trace.groups import mask_of

__all__ = ["TreeCopies", "TreeReadbacks", "tree_copies", "tree_readbacks"]

_LEADS = rf"^({'|'.join(WRAPPERS)})$"


class TreeCopies(NamedTuple):
    """Contexts that copy between host and device; one entry each.

    Attributes:
        copy: the context. operator: the one around it. root: the outermost operator that only leads to it.
        number: copies per step. bytes: mean payload. blocked: host time of the call and what is around it, ns per step.
        direction: `HtoD` or `DtoH`. pageable: whether ordinary host memory is involved. readback: whether the host waits
            for a value of at most `SMALL_BYTES`.
    """

    copy: np.ndarray
    operator: np.ndarray
    root: np.ndarray
    number: np.ndarray
    bytes: np.ndarray
    blocked: np.ndarray
    direction: np.ndarray
    pageable: np.ndarray
    readback: np.ndarray

    def of(self, chosen: np.ndarray) -> TreeCopies:
        """Those chosen by a mask."""
        return TreeCopies(*(column[chosen] for column in self))


class TreeReadbacks(NamedTuple):
    """Values that the host waits for; one entry for each context that reads.

    Attributes:
        root: the outermost operator that exists for it. number: reads per step. host: its host time, ns per step.
        by_shape: whether an operator whose output size depends on data asked (SYN102).
    """

    root: np.ndarray
    number: np.ndarray
    host: np.ndarray
    by_shape: np.ndarray

    def of(self, chosen: np.ndarray) -> TreeReadbacks:
        """Those chosen by a mask."""
        return TreeReadbacks(*(column[chosen] for column in self))


def tree_copies(contexts: Contexts) -> TreeCopies:
    """All copies between host and device that stand inside an operator."""
    tree = contexts.tree
    copy = np.flatnonzero(contexts.copies("HtoD", "DtoH") & (tree.parent >= 0) & (contexts.count > 0))
    operator = tree.parent[copy]
    held = mask_of(len(tree), operator)
    root_of = np.full(len(tree), -1, dtype=np.int64)
    root_of[np.flatnonzero(held)] = contexts.climbed(held, _LEADS)
    names = [tree.label(node) for node in copy.tolist()]
    size = tree.metrics["bytes"][copy] / np.maximum(tree.metrics["count"][copy], 1)
    direction = np.array([tree.strings[int(row)] for row in tree.detail[copy]], dtype=object)
    pageable = np.array(["Pageable" in name for name in names], dtype=bool)
    scalar = contexts.operators(r"^aten::_local_scalar_dense$")[operator]
    by_shape = contexts.operators(DATA_DEPENDENT)[operator]
    # Several copies of one operator (`HtoD` and `DtoH` of one `copy_`) share its time by their number.
    number = contexts.count[copy]
    of_operator = np.bincount(operator, weights=number, minlength=len(tree))[operator] if len(copy) else number
    return TreeCopies(
        copy=copy,
        operator=operator,
        root=root_of[operator],
        number=number,
        bytes=size,
        blocked=contexts.host[operator] * number / np.maximum(of_operator, 1e-12),
        direction=direction,
        pageable=pageable,
        readback=(direction == "DtoH") & (scalar | by_shape | (pageable & (size <= SMALL_BYTES))),
    )


def tree_readbacks(contexts: Contexts) -> TreeReadbacks:
    """Copies to the host that it waits for, by who wants them."""
    tree, found = contexts.tree, tree_copies(contexts)
    found = found.of(found.readback)
    held = mask_of(len(tree), found.operator)
    up = np.full(len(tree), -1, dtype=np.int64)
    up[np.flatnonzero(held)] = contexts.climbed(held, f"{_LEADS}|{DATA_DEPENDENT}")
    reader = up[found.operator]
    root = np.unique(reader)
    copied = np.bincount(reader, weights=found.number, minlength=len(tree))[root] if len(reader) else np.zeros(0)
    return TreeReadbacks(
        root=root,
        # `nonzero` and a boolean index both copy: the copies of one call are one readback.
        number=np.minimum(copied, np.where(contexts.calls[root] > 0, contexts.calls[root], copied)),
        host=contexts.inside(contexts.host)[root],
        by_shape=contexts.operators(DATA_DEPENDENT)[root],
    )
