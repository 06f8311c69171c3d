"""Which forward operator each backward operator belongs to.

The join itself is `Links.forward_of`. Here it is decided which rows *start* a piece of backward work: the outermost row
of each number; everything inside follows it.

`AccumulateGrad` carries no number. The autograd engine runs it right after the function that produced the gradient (its
priority is the highest), so it goes to the forward operator of the linked function before it: that is the operator
whose parameter receives the gradient. One that contains communication, as under DDP, stays where it ran: it moves the
gradients of a whole bucket, not of one layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.schema import ENGINE_PREFIX, Kind
from lanewise.tree.forest import nearest_marked
from lanewise.tree.from_trace.contexts import Contexts

__all__ = ["Backward", "find_backward"]

_ACCUMULATE = r"AccumulateGrad$"


class Backward(NamedTuple):
    """Backward rows.

    Attributes:
        forward: row of the forward operator of each row that starts a piece of backward work, else -1, shape (k,).
        inside: whether each row is backward work by its own name or number, shape (k,).
        operators: backward rows with a sequence number; linked: those whose forward operator was found.
        accumulated: gradient accumulations placed by order.
    """

    forward: np.ndarray
    inside: np.ndarray
    operators: int
    linked: int
    accumulated: int


def find_backward(trace: Trace, contexts: Contexts, communication: np.ndarray) -> Backward:
    """Backward rows and their forward operators.

    Args:
        trace, contexts: the trace and its rows.
        communication: whether each row is communication by its own name, shape (k,).
    """
    count = contexts.events
    event = contexts.event[:count]
    sequence = trace["events"]["sequence"][event]
    thread = trace["events"]["forward_thread"][event]
    evaluate = trace.name_series.str.starts_with(ENGINE_PREFIX).to_numpy()[trace.name[event]]
    accumulate = trace.name_mask(_ACCUMULATE)[trace.name[event]]
    operator = trace.kind[event] == Kind.OPERATOR
    numbered = operator & (thread > 0) & (sequence >= 0)

    target = trace.links.forward_of[event]
    found = np.where(target >= 0, contexts.row[np.maximum(target, 0)], -1)
    # The same number on the row around it: that one starts the piece of work.
    above = contexts.inner
    around = np.where(above >= 0, found[above], -1) if count else above
    start = np.where((found >= 0) & (found != around), found, -1)

    # A function that runs hooks first (as under FSDP) has its number on the inner row only.
    follows = start.copy()
    inside = np.flatnonzero((start >= 0) & (above >= 0))
    inside = inside[evaluate[above[inside]] & (start[above[inside]] < 0)]
    follows[above[inside]] = start[inside]
    placed = _accumulations(trace, contexts, follows, evaluate & operator, accumulate & operator, communication[:count])
    start = np.where(placed >= 0, placed, start)
    padding = np.full(len(contexts.event) - count, -1, dtype=np.int64)
    return Backward(
        forward=np.concatenate((start, padding)),
        inside=np.concatenate((evaluate | (operator & (thread > 0)), padding >= 0)),
        operators=int(np.count_nonzero(numbered)),
        linked=int(np.count_nonzero(numbered & (found >= 0))),
        accumulated=int(np.count_nonzero(placed >= 0)),
    )


def _accumulations(
    trace: Trace,
    contexts: Contexts,
    start: np.ndarray,
    evaluate: np.ndarray,
    accumulate: np.ndarray,
    communication: np.ndarray,
) -> np.ndarray:
    """Forward row for each gradient accumulation that stands directly in the engine's queue, else -1."""
    count = len(start)
    placed = np.full(count, -1, dtype=np.int64)
    queue = np.flatnonzero(evaluate)
    if len(queue) == 0 or not accumulate.any():
        return placed
    event = contexts.event[queue]
    order = np.lexsort((trace.start[event], trace.lane[event]))
    queue, event = queue[order], event[order]
    waiting = accumulate[queue]
    # The latest row of the queue that is not itself an accumulation.
    position = np.where(waiting, -1, np.arange(len(queue)))
    before = np.maximum.accumulate(position)
    good = waiting & (before >= 0)
    good[good] = trace.lane[event[before[good]]] == trace.lane[event[good]]
    good[good] = contexts.parent[queue[before[good]]] == contexts.parent[queue[good]]

    holds_communication = np.zeros(count, dtype=bool)
    if communication.any():
        over = nearest_marked(contexts.inner, evaluate & accumulate)
        at = over[np.flatnonzero(communication)]
        holds_communication[at[at >= 0]] = True
    good &= ~holds_communication[queue]
    placed[queue[good]] = start[queue[before[good]]]
    return placed
