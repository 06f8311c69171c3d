"""Phases of collected contexts: what `phases` tells from the rows of a trace, told from contexts alone.

There are no positions in time. In their place stands the order in which contexts were first seen, which in the first
step is the order of execution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.schema import ENGINE_PREFIX
from lanewise.tree.forest import nearest_marked, subtree_sums
from lanewise.tree.model import NodeKind, Phase
from lanewise.tree.phases_by_name import CHECKPOINT, TRANSFERS, phase_of_name

__all__ = ["phases_of_contexts"]


def phases_of_contexts(
    *,
    parent: np.ndarray,
    kind: np.ndarray,
    name: np.ndarray,
    strings: Sequence[str],
    thread: np.ndarray,
    numbered: np.ndarray,
    backward: np.ndarray,
    forward: np.ndarray,
    communication: np.ndarray,
) -> np.ndarray:
    """Phase of each context, shape (n,).

    Args:
        parent: the forest, parents before children.
        kind: `NodeKind`. name: row of `strings`.
        thread: thread of each context; those of one thread lie together, in the order of their first appearance.
        numbered: whether autograd gave the operator a sequence number.
        backward: whether it is a function of the backward pass.
        forward: row of the forward operator of backward work, or -1.
        communication: whether it is communication by its own name.
    """
    told = np.array([phase_of_name(text) for text in strings], dtype=np.int8)
    named = np.isin(kind, (NodeKind.OPERATOR, NodeKind.ANNOTATION, NodeKind.FRAME))
    own = np.where(named, told[name], -1).astype(np.int8)
    module = kind == NodeKind.MODULE
    own[module] = Phase.FORWARD
    evaluate = np.array([text.startswith(ENGINE_PREFIX) for text in strings], dtype=bool)[name]
    inside = backward | (evaluate & (kind == NodeKind.OPERATOR))
    own[inside] = Phase.BACKWARD
    own[communication] = Phase.COMMUNICATION
    own[_recomputed(parent, module, name, strings, inside, numbered, own)] = Phase.RECOMPUTE
    phase = _inherited(parent, own)
    open_forward = _by_order(parent, kind, name, strings, thread, phase, forward, bool(module.any()))
    own[open_forward] = Phase.FORWARD
    return _inherited(parent, own)


def _inherited(parent: np.ndarray, own: np.ndarray) -> np.ndarray:
    at = nearest_marked(parent, own >= 0)
    return np.where(at >= 0, own[at], Phase.OTHER).astype(np.uint8)


def _recomputed(
    parent: np.ndarray,
    module: np.ndarray,
    name: np.ndarray,
    strings: Sequence[str],
    inside: np.ndarray,
    numbered: np.ndarray,
    own: np.ndarray,
) -> np.ndarray:
    """Forward work inside backward work that a checkpoint or a module started."""
    within = nearest_marked(parent, inside) >= 0
    candidate = within & ~inside & (numbered | module) & (own != Phase.BACKWARD)
    if not candidate.any():
        return candidate
    checkpoint = np.array([bool(CHECKPOINT.search(text)) for text in strings], dtype=bool)[name]
    return candidate & (module | (nearest_marked(parent, checkpoint) >= 0))


def _by_order(
    parent: np.ndarray,
    kind: np.ndarray,
    name: np.ndarray,
    strings: Sequence[str],
    thread: np.ndarray,
    phase: np.ndarray,
    forward: np.ndarray,
    has_modules: bool,
) -> np.ndarray:
    """Outermost operators of no phase that belong to the forward pass."""
    operator = kind == NodeKind.OPERATOR
    above = nearest_marked(parent, operator)
    outermost = operator & (np.where(parent >= 0, above[parent], -1) < 0)
    open_ = outermost & (phase == Phase.OTHER)
    linked = np.zeros(len(parent), dtype=np.int64)
    linked[forward[forward >= 0]] = 1
    holds = outermost & (subtree_sums(parent, linked) > 0)
    if not holds.any() and not has_modules:
        # Nothing tells forward work from the rest: all operators that compute are taken for it.
        transfer = re.compile(TRANSFERS)
        moves = np.array([bool(transfer.search(text)) for text in strings], dtype=bool)[name]
        return open_ & ~moves
    rows = np.flatnonzero(outermost)
    is_forward = (holds[rows] & (phase[rows] == Phase.OTHER)) | (phase[rows] == Phase.FORWARD)
    known = is_forward | (phase[rows] != Phase.OTHER)
    place = np.arange(len(rows))
    before = np.maximum.accumulate(np.where(known, place, -1))
    after = np.minimum.accumulate(np.where(known, place, len(rows))[::-1])[::-1]
    between = ~known & (before >= 0) & (after < len(rows))
    at = np.flatnonzero(between)
    same = (thread[rows[before[at]]] == thread[rows[at]]) & (thread[rows[after[at]]] == thread[rows[at]])
    between[at] = is_forward[before[at]] & is_forward[after[at]] & same
    result = mask_of(len(parent), rows[is_forward | between])
    return result & open_
