"""Which share of the time that is left one part may use, so that no part takes it all from the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from lanewise.fix.candidates.candidate import Candidate

__all__ = [
    "LAST_GRACE",
    "LEARNING_S",
    "OWED_S",
    "PREPARE_SHARE",
    "TIMING_S",
    "captured_first",
    "gate_s",
    "likeliest_first",
    "most_s",
    "needed_s",
    "reserve_s",
    "share_of",
]

PREPARE_SHARE = 0.5
"""Of the budget, for learning how results can be verified; the checks are never made weaker to save time."""

LEARNING_S = 15.0
"""For that, however short the budget: without it what is owed cannot be tried."""

_RESERVE_SHARE, _SHORT_RESERVE_SHARE = 0.25, 0.08
"""Of the budget, at most, for everything that comes after the candidates: few rounds show what a compiler gives."""

_GATE_SHARE, _SHORT_GATE_SHARE = 0.08, 0.03
"""Of the budget, for checking candidates with more seeds than every kind of input needs."""

LAST_GRACE = 0.15
"""Of the budget, by which the last step may run over it; the time of one candidate, at the least."""

OWED_S = 60.0
"""By which a budget may be exceeded for what is owed, seconds: a plan must not end below one line of torch because the
budget was shorter than that line takes to compile."""

TIMING_S = 1.5
"""What it takes to time a candidate that is soon decided, seconds."""

_COMPILES, _FAIR_SHARES, _LEAST = 4.0, 2.0, 0.2
_COMPILER, _ENGINE = 0.6, 0.4
_SPARE = 1.5
_ROUND_S, _ROUNDS, _RECORD_S, _RECORDED_CALLS = 0.015, 40, 4.0, 60
"""What comes after the candidates: rounds of three samples per arm, and recordings of so many calls, seconds."""


_SHORT_S = 30.0
"""With less time left, not everything can be tried."""


_ONE_COMPILATION_S = 45.0
"""With less time left one compilation may be all that fits: the first one is given what it and what takes it up can use."""


def likeliest_first(candidates: Sequence[Candidate], left: float) -> list[Candidate]:
    """The same, in another order where there is little time: fixes of the program, then the compiler and the graph, which
    win most often, then what else there is."""
    if left >= _SHORT_S:
        return list(candidates)

    def rank(one: Candidate) -> int:
        if one.family in ("program", "optimizer"):
            return 0
        return 1 if one.alternative or one.replaces or one.follows else 2

    return sorted(candidates, key=rank)


def captured_first(candidates: Sequence[Candidate], left: float) -> list[Candidate]:
    """The same, in another order where there is time for one compilation: a graph of the compiled program comes before that
    program by itself, which it nearly always beats, and compiles it."""
    if left >= _ONE_COMPILATION_S:
        return list(candidates)
    graphs, names = {one.follows: one for one in candidates if one.follows}, {one.name for one in candidates}
    found: list[Candidate] = []
    for one in candidates:
        if one.name in graphs:
            before = {"compiles": one.compiles, "again": one.again, "owed": one.owed}
            found += [dataclasses.replace(graphs[one.name], follows="", **before), one]
        elif one.follows not in names:
            found.append(one)
    return found


def gate_s(seconds: float) -> float:
    """Seconds of a budget for checking with more seeds."""
    return (_SHORT_GATE_SHARE if seconds < _ONE_COMPILATION_S else _GATE_SHARE) * seconds


def share_of(candidate: Candidate, untried: Sequence[Candidate]) -> float:
    """The share of the time left that a candidate may use at most.

    Twice its fair share, where one that compiles counts as four others, and at least a fifth; a compiler at least three
    fifths, as a compilation that is stopped has given nothing, and a graph at least two.

    Args:
        untried: candidates still to try, this one included.
    """
    weights = sum(_weight(one) for one in untried)
    least = _COMPILER if candidate.compiles else _ENGINE if candidate.engine and not candidate.follows else _LEAST
    return min(1.0, max(least, _FAIR_SHARES * _weight(candidate) / weights))


def needed_s(candidate: Candidate, *, compile_s: float, judging_s: float) -> float:
    """Seconds without which a candidate need not be begun, by what others have taken."""
    return (candidate.again * compile_s if candidate.compiles else 0.0) + judging_s


def most_s(
    candidate: Candidate, untried: Sequence[Candidate], left: float, needed: float, *, judging_s: float = 0.0
) -> float:
    """Seconds that a candidate may use at most: its share, or half as much again as it needs, if that is more. The last
    one that compiles gets all but what the others are expected to need; where there is little time, any gets all but what
    the graphs of what it makes need, as a compilation that was stopped gives nothing to the next one."""
    most = max(left * share_of(candidate, untried), _SPARE * needed)
    others = [one for one in untried if one is not candidate]
    if candidate.compiles and left < _ONE_COMPILATION_S:
        followers = sum(one.follows == candidate.name for one in others)
        most = max(most, left - followers * _SPARE * judging_s)
    if candidate.compiles and not any(one.compiles for one in others):
        most = max(most, left - len(others) * _SPARE * judging_s)
    return min(left, most)


def reserve_s(seconds: float, *, call_s: float, arms: int, records: bool = True) -> float:
    """Seconds of a budget that are kept for comparing all ways in turns, and for recording before and after: what these
    are expected to take, and a quarter of the budget at most (less of a short one, where nothing is recorded).

    Args:
        call_s: what a call of the program takes. arms: ways to run it that are compared. records: whether it is recorded.
    """
    compared = arms * _ROUNDS * max(_ROUND_S, 4 * call_s)
    recorded = _RECORD_S + _RECORDED_CALLS * call_s if records else 0.0
    share = _SHORT_RESERVE_SHARE if seconds < _ONE_COMPILATION_S and not records else _RESERVE_SHARE
    return min(share * seconds, compared + recorded)


def _weight(candidate: Candidate) -> float:
    return _COMPILES if candidate.compiles else 1.0
