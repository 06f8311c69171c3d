"""The plan against all other ways to run the program, in turns; the best of them becomes the plan if it is better."""

from __future__ import annotations

from typing import NamedTuple

from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.timing import NULL, Samples, Schedule, arm_times, measure, timing_of
from lanewise.fix.model import ArmTime, Timing
from lanewise.fix.trial.alternatives import build_alternatives
from lanewise.fix.trial.bench import LONGEST_TIMING_S, Bench
from lanewise.fix.trial.ledger import Ledger, said

__all__ = ["EAGER", "PLAN", "Comparison", "compare_all"]

EAGER, PLAN = "eager", "plan"

_NEVER_BELOW = 0.98
"""A plan is never slower than this against the best of the other ways to run the program."""


class Comparison(NamedTuple):
    """All ways to run the program, in turns: their times, the plan against eager, and against the best other way."""

    final: list[ArmTime]
    eager: Timing | None
    other: Timing | None
    best: str


def compare_all(bench: Bench, ledger: Ledger) -> Comparison:
    """Time what is kept against eager and the alternatives; the ledger's plan is what has proven best.

    If nothing is kept, or the plan turns out no faster than eager, there is no timing of it in what is returned.
    """
    kept = ledger.kept
    if kept and not kept[0].candidate.alternative:
        build_alternatives(bench, ledger)
    others = [one for one in ledger.alternatives if [one.candidate.name] != ledger.names]
    if not kept and not others:
        return Comparison([], None, None, EAGER)
    arms: dict[str, Variant | None] = {EAGER: None, NULL: None}
    arms |= {one.candidate.name: one.variant for one in others}
    if kept:
        arms[PLAN] = ledger.plan
    seconds = max(1.0, min(2 * LONGEST_TIMING_S, 0.5 * bench.clock.left))
    bench.clock.tell(f"all of it in turns: {', '.join(name for name in arms if name != NULL)}")
    samples = measure(bench.subject, bench.state, arms, Schedule(seconds))
    final = [time for time in arm_times(samples.rounds) if time.name != NULL]
    medians = {time.name: time.median_us for time in final}
    names = [EAGER, *(one.candidate.name for one in others)]
    best = min(names, key=medians.__getitem__)
    if not kept:
        return Comparison(final, None, None, best)
    eager, other = _against(samples, EAGER, PLAN), _against(samples, best, PLAN)
    if problem := samples.wrong.get(PLAN):
        ledger.drop(kept[0].candidate.name, "wrong", problem)
        return Comparison(final, None, None, best)
    if bench.goal == "memory":
        return Comparison(final, eager, other, best)
    if other.ratio < _NEVER_BELOW and best != EAGER and best not in samples.wrong:
        eager = _against(samples, EAGER, best)
        _take_over(ledger, best, eager)
        runner = min((name for name in [*names, PLAN] if name != best), key=medians.__getitem__)
        return Comparison(final, eager, _against(samples, runner, best), runner)
    if eager.verdict != "faster":
        ledger.drop(kept[0].candidate.name, "not faster", f"not faster in the final comparison: {said(eager)}")
        return Comparison(final, None, None, best)
    return Comparison(final, eager, other, best)


def _against(samples: Samples, before: str, after: str) -> Timing:
    return timing_of(samples.rounds, before, after, looks=1, null_of=EAGER)


def _take_over(ledger: Ledger, best: str, eager: Timing) -> None:
    """One of the alternatives becomes the plan."""
    ledger.notes.append(f"{best} alone is faster than what was kept step by step; it is the plan")
    for name in ledger.names:
        ledger.change(name, outcome="not faster", reason=f"{best} alone is faster")
    ledger.kept = [next(one for one in ledger.alternatives if one.candidate.name == best)]
    ledger.change(best, outcome="kept", reason=said(eager))
