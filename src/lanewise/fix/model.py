"""What optimizing found out, as data. The JSON form of these structs is the public schema `lanewise.plan/1`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lanewise.report.model import Confidence

__all__ = ["OUTCOMES", "SCHEMA", "ArmTime", "Attempt", "Check", "Outcome", "PlanReport", "Shown", "Timing"]

SCHEMA = "lanewise.plan/1"

Outcome = Literal[
    "kept", "surpassed", "not faster", "not credited", "wrong", "refused", "pruned", "failed", "out of budget"
]
NumericClass = Literal["", "exact", "same precision", "less precise", "changes semantics"]
Goal = Literal["latency", "throughput", "memory"]

OUTCOMES: dict[Outcome, str] = {
    "kept": "correct and faster beyond noise; part of the plan",
    "surpassed": "correct and faster, but another way is faster still, and both cannot be",
    "not faster": "correct, but not proven faster (or not by enough)",
    "not credited": "faster, but the trace does not show the change that should have made it so",
    "wrong": "a check of the results failed",
    "refused": "changes what the program computes, and that was not allowed",
    "pruned": "cannot save enough to be worth trying, or does not apply here",
    "failed": "raised an error",
    "out of budget": "there was no time left to try it",
}


class Check(msgspec.Struct, frozen=True):
    """One check of a candidate's results: what was looked at, whether it held, and the figures."""

    rule: str
    passed: bool
    detail: str = ""


class Timing(msgspec.Struct, frozen=True):
    """Time of the program without a candidate over that with it, both measured in turns without a profiler.

    Attributes:
        ratio: median over median, above 1 where the candidate is faster. low, high: its 95 % interval.
        mde: smallest effect that would have been found, as a share. p: of the test.
        verdict: a word of `compare.statistics`.
        before_us, after_us: medians per call, us. rounds: turns taken. noise: the same ratio of the program with itself.
    """

    ratio: float
    low: float
    high: float
    mde: float
    p: float
    verdict: str
    before_us: float
    after_us: float
    rounds: int
    noise: float = 1.0


class Shown(msgspec.Struct, frozen=True):
    """What the trace recorded afterwards shows of a prediction."""

    prediction: str
    seen: bool
    detail: str = ""


class Attempt(msgspec.Struct, frozen=True):
    """One candidate that was considered.

    Attributes:
        name: stable; what `allow` and saved plans use. family: kind of candidate. region: what part of the program.
        what: one sentence. outcome, reason: what came of it and why.
        numeric_class: as found by the checks, "" if they were not made.
        bound: highest ratio that the work allows, 0 if unknown.
        predicted: ratio against the program as it was that replaying a recording of it predicts, 0 where none was given
            or it says nothing of this; to be held against `timing`.
        prepare_s: compiling, capturing and warming up, seconds.
        repaid_after: calls until the time saved has paid for `prepare_s`; 0 where nothing is saved.
        peak_before, peak_after: most memory allocated at once, bytes; -1 where it was not recorded.
        shown: what the trace says about its predictions; empty where none was recorded.
    """

    name: str
    family: str
    region: str
    what: str
    outcome: Outcome
    reason: str
    numeric_class: NumericClass = ""
    checks: list[Check] = msgspec.field(default_factory=list[Check])
    timing: Timing | None = None
    bound: float = 0.0
    predicted: float = 0.0
    prepare_s: float = 0.0
    repaid_after: int = 0
    peak_before: int = -1
    peak_after: int = -1
    shown: list[Shown] = msgspec.field(default_factory=list[Shown])
    notes: list[str] = msgspec.field(default_factory=list[str])


class ArmTime(msgspec.Struct, frozen=True):
    """One way to run the program in the final comparison: median, 20 % and 80 % quantile per call, us; and the median clock
    of the card's multiprocessors, MHz, 0 if unknown."""

    name: str
    median_us: float
    p20_us: float
    p80_us: float
    samples: int
    sm_mhz: float = 0.0


class PlanReport(msgspec.Struct, frozen=True):
    """Everything that `optimize` tried.

    Attributes:
        subject: what was optimized: class or function name. kind: `inference`, `training` or `step`.
        machine: what the times depend on besides the program.
        attempts: every candidate, in the order in which they were considered.
        winner: names of the kept ones, in the order in which they are applied.
        final: all ways to run it, measured in turns; `eager` is the program as it was given.
        before_after: what the traces recorded before and after differ in, as `lanewise diff` says it; "" without traces.
        against_eager: of the winner. against_best: over the best of the other ways; None where nothing was kept.
        seconds: spent. budget_s: allowed.
        profilers: had been attached in this process before something was timed; it stays slower after one.
        confidence: of the times: `high`; `medium` or `low` after a profiler, see `fix.trial.confidence`.
    """

    schema: str
    version: str
    subject: str
    kind: str
    goal: str
    machine: dict[str, Any]
    attempts: list[Attempt]
    winner: list[str]
    final: list[ArmTime]
    against_eager: Timing | None
    against_best: Timing | None
    best_alternative: str
    reference: str
    notes: list[str]
    before_after: str
    seconds: float
    budget_s: float
    profilers: list[str] = msgspec.field(default_factory=list[str])
    confidence: Confidence = "high"
