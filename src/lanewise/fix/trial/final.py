"""The plan against all other ways to run the program, in turns; the best of them becomes the plan if it is better.

Whatever may still turn out to be the plan is timed here: afterwards a profiler is attached, and no time taken in a process
that had one can be compared with these.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from lanewise.fix.candidates.candidate import Several, Variant
from lanewise.fix.gate.speed.clocks import clock_note
from lanewise.fix.gate.speed.timing import NULL, Samples, Schedule, arm_times, measure, timing_of
from lanewise.fix.model import ArmTime, Timing
from lanewise.fix.time_budget import OutOfTime
from lanewise.fix.trial.alternatives import build_alternatives
from lanewise.fix.trial.confidence import margin
from lanewise.fix.trial.ledger import Ledger, said
from lanewise.fix.trial.shares import LAST_GRACE
from lanewise.fix.trial.workbench import LONGEST_TIMING_S, Bench

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
    precision = max((one.candidate.precision for one in kept), default=0.0)
    clock = bench.clock
    seconds = max(1.0, min(2 * LONGEST_TIMING_S, 0.5 * clock.left))
    clock.tell(f"all of them alternately: {', '.join(name for name in arms if name != NULL)}")
    try:
        with clock.at_most(clock.left + max(LAST_GRACE * clock.seconds, LONGEST_TIMING_S)):
            samples = measure(
                bench.subject,
                bench.state,
                arms,
                # Large calls make few rounds in a short time, and with too few all that was found would be dropped.
                Schedule(seconds, enough=6, patience=max(1.5, LONGEST_TIMING_S / seconds)),
                apart=lambda at: bench.gate.apart(at, precision),
                each=bench.each,
            )
        if note := clock_note(samples.clocks):
            ledger.notes.append(note)
        return contest._replace(samples=samples)
    except OutOfTime:
        if kept:
            ledger.drop(kept[0].candidate.name, "out of budget", "no time was left for the final comparison")
        return contest


def decide(bench: Bench, ledger: Ledger, contest: Contest) -> Comparison:
    """Make the plan what has proven best: what is kept, or the best of the other ways.

    If nothing is faster than eager beyond noise, nothing is kept, and there is no timing of a plan in what is returned.
    """
    samples = contest.samples
    if samples is None:
        return Comparison([], None, None, EAGER)
    if ledger.kept and (problem := samples.wrong.get(PLAN)):
        ledger.drop(ledger.names[0], "wrong", problem)
    found = _compared(ledger, contest)
    if bench.goal == "memory":
        return found
    return _best_way(bench, ledger, contest, found, refused=())


def decide_again(bench: Bench, ledger: Ledger, contest: Contest, refused: Collection[str]) -> Comparison:
    """The comparison for what is left of the plan after its last parts were dropped, from the same samples.

    Another way to run the program takes its place where that was measured to be faster; a trace has yet to confirm it.

    Args:
        refused: ways that no trace has confirmed when it was asked.
    """
    found = _compared(ledger, contest)
    if bench.goal == "memory":
        return found
    return _best_way(bench, ledger, contest, found, refused=refused)


def _compared(ledger: Ledger, contest: Contest) -> Comparison:
    """What is kept now, against eager and the best of the other ways."""
    samples = contest.samples
    assert samples is not None
    final = [time for time in arm_times(samples.rounds, samples.clocks) if time.name != NULL]
    medians = {time.name: time.median_us for time in final}
    best = min((EAGER, *contest.others), key=medians.__getitem__)
    if not ledger.kept:
        return Comparison(final, None, None, best)
    mine = contest.arm_of(ledger.names)
    return Comparison(final, _against(samples, EAGER, mine), _against(samples, best, mine), best)


def _best_way(
    bench: Bench, ledger: Ledger, contest: Contest, found: Comparison, *, refused: Collection[str]
) -> Comparison:
    """What is kept, if it is faster than eager and not slower than another way; else the best other way that is faster."""
    samples = contest.samples
    assert samples is not None
    medians = {time.name: time.median_us for time in found.final}
    needed = 1 + margin(ledger.profilers, cuda=bench.subject.cuda)
    mine = contest.arm_of(ledger.names) if ledger.kept else EAGER
    sound = found.eager is not None and found.eager.verdict == "faster" and mine not in samples.wrong
    ways = [one.candidate.name for one in ledger.alternatives if one.proven and one.candidate.name in contest.others]
    ways = [name for name in ways if name not in refused and name not in samples.wrong and name != mine]
    for way in sorted(ways, key=medians.__getitem__):
        if sound and medians[way] >= _NEVER_BELOW * medians[mine]:
            break
        eager = timing_of(samples.rounds, EAGER, way, looks=max(1, len(contest.others)), null_of=EAGER)
        if eager.verdict == "faster" and eager.low > needed:
            return _take_over(ledger, contest, way, eager)
    if found.eager is not None and not sound:
        problem = samples.wrong.get(mine, "")
        reason = problem or f"not faster in the final comparison: {said(found.eager)}"
        ledger.drop(ledger.names[0], "wrong" if problem else "not faster", reason)
        return Comparison(found.final, None, None, found.best)
    return found


def _against(samples: Samples, before: str, after: str) -> Timing:
    return timing_of(samples.rounds, before, after, looks=1, null_of=EAGER)


def _take_over(ledger: Ledger, contest: Contest, way: str, eager: Timing) -> Comparison:
    """One of the other ways becomes the plan; what was the plan is a way to run the program like the others now."""
    samples = contest.samples
    assert samples is not None
    before = contest.arm_of(ledger.names) if ledger.kept else ""
    shown = " + ".join(ledger.names)
    if before:
        ledger.notes.append(f"{way} alone is faster than what was kept step by step; it is the plan")
    else:
        ledger.notes.append(f"{way} was proven faster only in the final comparison; it is the plan")
    for name in ledger.names:
        ledger.change(name, outcome="surpassed", reason=f"{way} alone is faster")
    ledger.kept = [next(one for one in ledger.alternatives if one.candidate.name == way)]
    ledger.change(way, outcome="kept", reason=said(eager))
    times = arm_times(samples.rounds, samples.clocks)
    medians = {time.name: time.median_us for time in times}
    runner = min((name for name in (EAGER, *contest.others, before) if name not in ("", way)), key=medians.__getitem__)
    names = {before: shown} if before else {}
    final = [msgspec.structs.replace(time, name=names.get(time.name, time.name)) for time in times if time.name != NULL]
    return Comparison(final, eager, _against(samples, runner, way), names.get(runner, runner))
