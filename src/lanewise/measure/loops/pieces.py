"""What takes a tensor apart for a loop, and puts the results of its rounds together again."""

from __future__ import annotations

import math

import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.loops.rounds import PICKS, Shape, piece_of
from lanewise.measure.loops.sequences import Repeat

__all__ = ["around", "piece_before"]

_TAKES_APART = ("aten::unbind", "aten::split")
_PUTS_TOGETHER = ("aten::stack", "aten::cat")
# How far before a loop what it works on may be taken apart: `zip` of several tensors does so for each of them.
_BEFORE = 4


def around(facts: Core, events: np.ndarray, repeat: Repeat) -> np.ndarray:
    """What takes a loop's pieces apart, before it and in its first round, and puts the results together behind it; nothing
    where the loop takes nothing apart.

    Args:
        facts: the measures. events: the sequence of operators. repeat: the loop, by positions in it.
    """
    trace = facts.trace
    before = _taken_apart(facts, events, repeat)
    first = events[repeat.first : repeat.first + repeat.period]
    picks = first[np.isin(trace.name[first], trace.name_ids(*PICKS))]
    if len(before) + len(picks) == 0:
        return picks
    after = events[repeat.last + 1 : repeat.last + 2]
    joins = np.isin(trace.name[after], trace.name_ids(*_PUTS_TOGETHER)) & _same_place(facts, after, int(first[0]))
    return np.concatenate((before, picks, after[joins]))


def piece_before(facts: Core, events: np.ndarray, repeat: Repeat) -> Shape | None:
    """Shape of the pieces that a tensor was taken apart into before a loop; None where none was, or that is not known."""
    before = _taken_apart(facts, events, repeat)
    return _piece(facts, int(before[0])) if len(before) else None


def _taken_apart(facts: Core, events: np.ndarray, repeat: Repeat) -> np.ndarray:
    """Operators shortly before a loop that take a tensor apart into as many pieces as it has rounds."""
    trace = facts.trace
    near = events[max(0, repeat.first - _BEFORE) : repeat.first]
    near = near[
        np.isin(trace.name[near], trace.name_ids(*_TAKES_APART)) & _same_place(facts, near, int(events[repeat.first]))
    ]
    return near[[_pieces(facts, int(event)) == repeat.count for event in near]] if len(near) else near


def _pieces(facts: Core, event: int) -> int:
    """Into how many pieces an operator takes a tensor apart; 0 where that is not known."""
    call = facts.signatures.of(event)
    whole = call.tensor(0) if call is not None else None
    piece = _piece(facts, event)
    return -(-whole.numel // max(1, math.prod(piece))) if whole is not None and piece is not None else 0


def _piece(facts: Core, event: int) -> Shape | None:
    call = facts.signatures.of(event)
    return piece_of(facts.trace.name_of(event), call) if call is not None else None


def _same_place(facts: Core, events: np.ndarray, other: int) -> np.ndarray:
    """Whether each event is of the same thread and step as another one."""
    trace, step = facts.trace, facts.trace.steps.of_event
    return (trace.lane[events] == trace.lane[other]) & (step[events] == step[other])
