"""The plan against all other ways to run the program, in turns; the best of them becomes the plan if it is better.

Whatever may still turn out to be the plan is timed here: afterwards a profiler is attached, and no time taken in a process
that had one can be compared with these.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lanewise.fix.budget import OutOfTime
from lanewise.fix.candidates.candidate import Several, Variant
from lanewise.fix.gate.timing import NULL, Samples, Schedule, arm_times, measure, timing_of
from lanewise.fix.model import ArmTime, Timing
from lanewise.fix.trial.alternatives import build_alternatives
from lanewise.fix.trial.bench import LONGEST_TIMING_S, Bench
from lanewise.fix.trial.confidence import margin
from lanewise.fix.trial.ledger import Ledger, said
from lanewise.fix.trial.shares import LAST_GRACE

__all__ = ["EAGER", "Comparison", "Contest", "decide", "decide_again", "hold_contest"]

EAGER, PLAN = "eager", "plan"

_NEVER_BELOW = 0.98
"""A plan is never slower than this against the best of the other ways to run the program."""


class Contest(NamedTuple):
    """What was measured.

    Attributes:
        samples: by arm; None if there was nothing to measure. whole: names of the plan whose arm is `PLAN`; what is left
            of it without its last parts has an arm too, see `arm_of`.
        others: names of the alternatives that took part.
    """

    samples: Samples | None
    whole: list[str]
    others: list[str]

    def arm_of(self, names: list[str]) -> str:
        """The arm in which these candidates, the first ones of the plan, were timed."""
        return PLAN if names == self.whole else " + ".join(names)


class Comparison(NamedTuple):
    """All ways to run the program, in turns: their times, the plan against eager, and against the best other way."""

    final: list[ArmTime]
    eager: Timing | None
    other: Timing | None
    best: str


def hold_contest(bench: Bench, ledger: Ledger) -> Contest:
    """Time eager, the alternatives, the plan, and the plan without its last part, without its last two ..."""
    kept, whole = ledger.kept, ledger.names
    if kept:
        build_alternatives(bench, ledger)
    others = [one for one in ledger.alternatives if [one.candidate.name] != whole]
    contest = Contest(None, whole, [one.candidate.name for one in others])
    if not kept and not others:
        return contest
    arms: dict[str, Variant | None] = {EAGER: None, NULL: None}
    arms |= {one.candidate.name: one.variant for one in others}
    for length in range(1, len(kept) + 1):
        arms[contest.arm_of(whole[:length])] = Several([one.variant for one in kept[:length]])
    ledger.about_to_time()
    clock = bench.clock
    seconds = max(1.0, min(2 * LONGEST_TIMING_S, 0.5 * clock.left))
    clock.tell(f"all of it in turns: {', '.join(name for name in arms if name != NULL)}")
    try:
        with clock.at_most(clock.left + LAST_GRACE * clock.seconds):
            return contest._replace(
                samples=measure(bench.subject, bench.state, arms, Schedule(seconds, enough=6, patience=1.5))
            )
    except OutOfTime:
        if kept:
            ledger.drop(kept[0].candidate.name, "out of budget", "no time was left to compare all ways in turns")
        return contest


def decide(bench: Bench, ledger: Ledger, contest: Contest) -> Comparison:
    """Make the plan what has proven best.

    If nothing is kept, or the plan turns out no faster than eager, there is no timing of it in what is returned.
    """
    samples = contest.samples
    if samples is None:
        return Comparison([], None, None, EAGER)
    final = [time for time in arm_times(samples.rounds) if time.name != NULL]
    medians = {time.name: time.median_us for time in final}
    names = [EAGER, *contest.others]
    best = min(names, key=medians.__getitem__)
    if not ledger.kept:
        return _without_plan(bench, ledger, contest, Comparison(final, None, None, best))
    eager, other = _against(samples, EAGER, PLAN), _against(samples, best, PLAN)
    if problem := samples.wrong.get(PLAN):
        ledger.drop(ledger.names[0], "wrong", problem)
        return Comparison(final, None, None, best)
    if bench.goal == "memory":
        return Comparison(final, eager, other, best)
    if other.ratio < _NEVER_BELOW and best != EAGER and best not in samples.wrong:
        eager = _against(samples, EAGER, best)
        _take_over(ledger, best, eager)
        runner = min((name for name in [*names, PLAN] if name != best), key=medians.__getitem__)
        other = _against(samples, runner, best)
        # What was the plan is a way to run it like the others now.
        before = " + ".join(contest.whole)
        final = [msgspec.structs.replace(time, name=before) if time.name == PLAN else time for time in final]
        return Comparison(final, eager, other, before if runner == PLAN else runner)
    if eager.verdict != "faster":
        ledger.drop(ledger.names[0], "not faster", f"not faster in the final comparison: {said(eager)}")
        return Comparison(final, None, None, best)
    return Comparison(final, eager, other, best)


def _without_plan(bench: Bench, ledger: Ledger, contest: Contest, found: Comparison) -> Comparison:
    """Nothing was proven step by step; where there was little time for each, one of them may have proven better here."""
    samples, best = contest.samples, found.best
    assert samples is not None
    if best == EAGER or best in samples.wrong or bench.goal == "memory":
        return found
    eager = timing_of(samples.rounds, EAGER, best, looks=len(contest.others), null_of=EAGER)
    if eager.verdict != "faster" or eager.low <= 1 + margin(ledger.profilers, cuda=bench.subject.cuda):
        return found
    _take_over(ledger, best, eager)
    medians = {time.name: time.median_us for time in found.final if time.name in (EAGER, *contest.others)}
    runner = min((name for name in medians if name != best), key=medians.__getitem__)
    return Comparison(found.final, eager, _against(samples, runner, best), runner)


def decide_again(bench: Bench, ledger: Ledger, contest: Contest) -> Comparison:
    """The comparison for what is left of the plan after its last parts were dropped, from the same samples.

    It is dropped if it is not faster by itself. No alternative takes its place: none of them was confirmed by a trace.
    """
    assert contest.samples is not None
    final = [time for time in arm_times(contest.samples.rounds) if time.name != NULL]
    medians = {time.name: time.median_us for time in final}
    best = min((EAGER, *contest.others), key=medians.__getitem__)
    if not ledger.kept:
        return Comparison(final, None, None, best)
    mine = contest.arm_of(ledger.names)
    eager, other = _against(contest.samples, EAGER, mine), _against(contest.samples, best, mine)
    problem = contest.samples.wrong.get(mine, "")
    if problem or (eager.verdict != "faster" and bench.goal != "memory"):
        reason = problem or f"not faster by itself: {said(eager)}"
        ledger.drop(ledger.names[0], "wrong" if problem else "not faster", reason)
        return Comparison(final, None, None, best)
    if other.ratio < _NEVER_BELOW and best != EAGER:
        ledger.notes.append(f"{best} alone is faster than what is left of the plan; no trace has confirmed it")
    return Comparison(final, eager, other, best)


def _against(samples: Samples, before: str, after: str) -> Timing:
    return timing_of(samples.rounds, before, after, looks=1, null_of=EAGER)


def _take_over(ledger: Ledger, best: str, eager: Timing) -> None:
    """One of the alternatives becomes the plan."""
    if ledger.kept:
        ledger.notes.append(f"{best} alone is faster than what was kept step by step; it is the plan")
    else:
        ledger.notes.append(f"{best} was proven faster only in the final comparison; it is the plan")
    for name in ledger.names:
        ledger.change(name, outcome="not faster", reason=f"{best} alone is faster")
    ledger.kept = [next(one for one in ledger.alternatives if one.candidate.name == best)]
    ledger.change(best, outcome="kept", reason=said(eager))
