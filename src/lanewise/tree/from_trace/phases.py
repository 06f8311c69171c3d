"""The phase of every context: forward, backward, recompute, optimizer, data loading, communication or other.

A row whose name or number tells its phase starts it, and what is inside inherits it; the innermost such row decides.
What no name tells is decided by position: an operator between two operators of the forward pass is part of it. The
device lane's own annotations are never used: they miss what other threads launch.
"""

from __future__ import annotations

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from lanewise.tree.forest import nearest_marked
from lanewise.tree.from_trace.backward import Backward
from lanewise.tree.from_trace.contexts import Contexts
from lanewise.tree.model import NodeKind, Phase
from lanewise.tree.phases_by_name import CHECKPOINT, COMMUNICATION, TRANSFERS, phase_of_name

__all__ = ["find_phases", "is_communication"]


def is_communication(trace: Trace, contexts: Contexts) -> np.ndarray:
    """Whether each row is communication by its own name, shape (rows,)."""
    result = np.zeros(len(contexts.event), dtype=bool)
    count = contexts.events
    event = contexts.event[:count]
    named = trace.name_mask(COMMUNICATION)[trace.name[event]]
    result[:count] = named & (trace.kind[event] != Kind.PYTHON)
    return result


def find_phases(trace: Trace, contexts: Contexts, backward: Backward, communication: np.ndarray) -> np.ndarray:
    """Phase of each row, shape (rows,)."""
    count = contexts.events
    result = np.full(len(contexts.event), Phase.OTHER, dtype=np.uint8)
    if count == 0:
        return result
    event = contexts.event[:count]
    inner = contexts.inner
    own = np.full(count, -1, dtype=np.int8)
    own[:] = _by_name(trace)[trace.name[event]]
    module = contexts.kind[:count] == NodeKind.MODULE
    own[module] = Phase.FORWARD
    own[backward.inside[:count]] = Phase.BACKWARD
    own[communication[:count]] = Phase.COMMUNICATION
    recomputed = _recomputed(trace, contexts, backward, own == Phase.BACKWARD)
    own[recomputed] = Phase.RECOMPUTE
    phase = _inherited(inner, own)
    own[_by_position(trace, contexts, phase, module.any())] = Phase.FORWARD
    result[:count] = _inherited(inner, own)
    return result


def _inherited(parent: np.ndarray, own: np.ndarray) -> np.ndarray:
    at = nearest_marked(parent, own >= 0)
    return np.where(at >= 0, own[at], Phase.OTHER).astype(np.uint8)


def _by_name(trace: Trace) -> np.ndarray:
    """Phase that each name tells, or -1. Shape (names,)."""
    result = np.full(len(trace.names), -1, dtype=np.int8)
    host = trace.of(Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON)
    for name in np.unique(trace.name[host]).tolist():
        result[name] = phase_of_name(trace.names[int(name)])
    return result


def _recomputed(trace: Trace, contexts: Contexts, backward: Backward, is_backward: np.ndarray) -> np.ndarray:
    """Rows that start recomputation: forward work inside a backward row."""
    count = contexts.events
    event = contexts.event[:count]
    inner = contexts.inner
    within = np.where(inner >= 0, nearest_marked(inner, backward.inside[:count])[inner], -1)
    sequence = trace["events"]["sequence"][event]
    numbered = (trace.kind[event] == Kind.OPERATOR) & (sequence >= 0) & (trace["events"]["forward_thread"][event] <= 0)
    module = contexts.kind[:count] == NodeKind.MODULE
    candidate = (within >= 0) & (numbered | module) & ~is_backward
    if not candidate.any():
        return candidate
    used = np.zeros(len(trace.names), dtype=bool)
    for name in np.unique(trace.name[event]).tolist():
        used[name] = bool(CHECKPOINT.search(trace.names[int(name)]))
    checkpoint = nearest_marked(inner, used[trace.name[event]])
    surely = candidate & ((checkpoint >= 0) | module)
    if surely.any():
        return surely
    # Under create_graph=True gradients are on all the time, so the operators of a backward function are numbered to the
    # last; a function that recomputes ends with its own, unnumbered work.
    holder = np.unique(within[candidate])
    child = np.flatnonzero((trace.kind[event] == Kind.OPERATOR) & np.isin(inner, holder))
    child = child[np.lexsort((trace.start[event[child]], inner[child]))]
    last = child[np.concatenate((inner[child][1:] != inner[child][:-1], [True]))]
    ends_unnumbered = mask_of(count, inner[last[sequence[last] < 0]])
    return candidate & ends_unnumbered[np.maximum(within, 0)]


def _by_position(trace: Trace, contexts: Contexts, phase: np.ndarray, has_modules: bool) -> np.ndarray:
    """Outermost operators of no phase that belong to the forward pass."""
    count = contexts.events
    event = contexts.event[:count]
    inner = contexts.inner
    operator = contexts.kind[:count] == NodeKind.OPERATOR
    above = nearest_marked(inner, operator)
    outermost = operator & (np.where(inner >= 0, above[inner], -1) < 0)
    open_ = outermost & (phase == Phase.OTHER)
    linked = _holds_forward(trace, contexts, outermost)
    if not linked.any() and not has_modules:
        # Nothing in the file tells forward work from the rest: all operators that compute are taken for it.
        return open_ & ~trace.name_mask(TRANSFERS)[trace.name[event]]
    rows = np.flatnonzero(outermost)
    rows = rows[np.lexsort((trace.start[event[rows]], trace.lane[event[rows]]))]
    is_forward = linked[rows] & (phase[rows] == Phase.OTHER) | (phase[rows] == Phase.FORWARD)
    other_phase = ~is_forward & (phase[rows] != Phase.OTHER)
    between = _between(trace, event[rows], is_forward, other_phase)
    # A backward pass on another thread also ends a forward pass.
    begins = np.sort(trace.start[event[backward_starts(phase, contexts, event)]])
    if len(begins) and between.any():
        place = np.arange(len(rows))
        before = np.maximum.accumulate(np.where(is_forward, place, -1))
        after = np.minimum.accumulate(np.where(is_forward, place, len(rows))[::-1])[::-1]
        between[between] = np.searchsorted(begins, trace.start[event[rows[before[between]]]]) == np.searchsorted(
            begins, trace.start[event[rows[after[between]]]]
        )
    result = mask_of(count, rows[is_forward | between])
    return result & open_


def backward_starts(phase: np.ndarray, contexts: Contexts, event: np.ndarray) -> np.ndarray:
    """Rows where backward work begins: of that phase under a row of another one."""
    inner = contexts.inner
    around = np.where(inner >= 0, phase[inner], Phase.OTHER)
    return np.flatnonzero((phase == Phase.BACKWARD) & (around != Phase.BACKWARD) & (event >= 0))


def _holds_forward(trace: Trace, contexts: Contexts, outermost: np.ndarray) -> np.ndarray:
    """Which outermost operators contain the forward operator of some backward one."""
    count = contexts.events
    target = trace.links.forward_of
    rows = contexts.row[np.unique(target[target >= 0])]
    result = np.zeros(count, dtype=bool)
    if len(rows):
        at = nearest_marked(contexts.inner, outermost)[rows[rows >= 0]]
        result[at[at >= 0]] = True
    return result


def _between(trace: Trace, event: np.ndarray, is_forward: np.ndarray, other_phase: np.ndarray) -> np.ndarray:
    """Rows (ordered by lane and start) whose neighbours of known phase are forward on both sides, in the same step."""
    place = np.arange(len(event))
    known = is_forward | other_phase
    segment = trace.lane[event].astype(np.int64) * (len(trace.steps) + 2) + trace.steps.of_event[event] + 1
    before = np.maximum.accumulate(np.where(known, place, -1))
    after = np.minimum.accumulate(np.where(known, place, len(event))[::-1])[::-1]
    inside = ~known & (before >= 0) & (after < len(event))
    at = np.flatnonzero(inside)
    good = (
        is_forward[before[at]]
        & is_forward[after[at]]
        & (segment[before[at]] == segment[at])
        & (segment[after[at]] == segment[at])
    )
    return mask_of(len(event), at[good])
