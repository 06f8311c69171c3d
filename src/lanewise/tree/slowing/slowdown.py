"""What a watched program says about its own course: places that became slower, and the step over time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_PERIODS", "Period", "Slowdown"]

MOST_PERIODS = 64
"""Periods of a run's history at most: two become one where there would be more."""


@dataclass(frozen=True)
class Slowdown:
    """One place that has been taking longer since some step, or takes longer than in a baseline.

    Attributes:
        path: names from outside in, of modules, functions of the user's and the place itself; untrusted.
        file, line, function: the nearest function of the user's; "" and 0 where there is none.
        what: "host time" or "device time"; against a baseline also "calls": how often it is entered.
        alone: whether it is the place's own time, without what it calls.
        before, after: per step, ns or a number. Times with the speed of the machine as it was when the reference was taken,
            or, against a baseline, as it is now.
        calls_before, calls_after: how often the place is entered in a step; 0 for functions, whose calls are not counted.
        since: step from which on it takes longer; 0 against a baseline. at: step after which that was certain. Both from 0.
        against: file or folder of the baseline; "" if it is slower than in its own first steps.
    """

    path: tuple[str, ...]
    file: str = ""
    line: int = 0
    function: str = ""
    what: str = "host time"
    alone: bool = False
    before: float = 0.0
    after: float = 0.0
    calls_before: float = 0.0
    calls_after: float = 0.0
    since: int = 0
    at: int = 0
    against: str = ""


@dataclass(frozen=True)
class Period:
    """A stretch of a run.

    Attributes:
        steps: steps that went by. ns: how long that took.
        watched: how many of them were watched. calls: operators, scopes and modules entered in these, on all threads.
    """

    steps: int
    ns: int
    watched: int
    calls: int
