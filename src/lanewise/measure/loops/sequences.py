"""Sequences of operators: loops that repeat one pattern, and regions that every step runs alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["Repeat", "outer_operators", "repeats_in", "repeats_of_operators"]


@dataclass(frozen=True, eq=False)
class Repeat:
    """One pattern that repeats without a break.

    Attributes:
        first, last: positions in the sequence of the first item and of the last item of the last full repetition.
        period: items per repetition.
        count: full repetitions.
    """

    first: int
    last: int
    period: int
    count: int


def repeats_in(key: np.ndarray, *, longest: int = 20, at_least: int = 10) -> list[Repeat]:
    """Patterns of up to `longest` items that repeat `at_least` times contiguously, disjoint, shortest pattern first.

    Args:
        key: the sequence; equal items have equal keys; negative keys match nothing, not even each other.
    """
    found: list[Repeat] = []
    taken = np.zeros(len(key), dtype=bool)
    for period in range(1, longest + 1):
        if len(key) < period * at_least:
            break
        # Item i repeats the one a period earlier; a run of n such items is n // period repetitions more than one.
        same = (key[period:] == key[:-period]) & (key[period:] >= 0) & ~taken[period:] & ~taken[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
        free = 0
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            # Two runs of one period may share items: "bcbc" and "caca" in "bcbcaca".
            begin = max(begin, free)
            count = (end - begin) // period + 1
            if count >= at_least:
                last = begin + count * period - 1
                found.append(Repeat(begin, last, period, count))
                taken[begin : last + 1] = True
                free = last + 1
    return found


@remembered
def outer_operators(facts: Core) -> np.ndarray:
    """Operators of steady steps that the user's code calls, in (lane, start) order: no operator, compiler or framework
    row is around them."""
    trace, parent = facts.trace, facts.host.parent
    events = trace.of(Kind.OPERATOR)
    events = events[(facts.host.outermost_operator[events] == events) & facts.in_steady_step[events]]
    special = facts.framework_names | facts.collective_names
    hidden = (special[trace.name] if len(special) else np.zeros(len(trace), dtype=bool)) & np.isin(
        trace.kind, (Kind.ANNOTATION, Kind.OPERATOR)
    )
    hidden[facts.compile_rows] = True
    events = events[nearest(parent, hidden, events, include_self=True) < 0]
    return events[np.lexsort((trace.start[events], trace.lane[events]))]


def repeats_of_operators(facts: Core, *, longest: int = 20, at_least: int = 10) -> tuple[np.ndarray, list[Repeat]]:
    """The sequence of `outer_operators` and the repeats in it; a repeat never reaches across a lane or a step."""
    trace = facts.trace
    events = outer_operators(facts)
    if len(events) == 0:
        return events, []
    # A negative item between lanes and steps stops every pattern there.
    group = trace.lane[events].astype(np.int64) * (len(trace.steps) + 1) + trace.steps.of_event[events]
    breaks = np.flatnonzero(group[1:] != group[:-1]) + 1
    key = np.insert(trace.name[events].astype(np.int64), breaks, -1)
    position = np.insert(np.arange(len(events)), breaks, -1)
    return events, [
        Repeat(int(position[r.first]), int(position[r.last]), r.period, r.count)
        for r in repeats_in(key, longest=longest, at_least=at_least)
    ]
