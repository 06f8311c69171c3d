"""`run_trial`: candidates one by one, then all that is left against each other, then a trace."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.capture.profiling.history import profilers_so_far
from lanewise.errors import UsageError
from lanewise.fix.bounded_compilation import start_workers
from lanewise.fix.bounds import Known, order
from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.plans.plan import Plan
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.time_budget import Budget, OutOfTime
from lanewise.fix.trial.attempt import try_candidate
from lanewise.fix.trial.confidence import profiler_note
from lanewise.fix.trial.credit import credit
from lanewise.fix.trial.final import decide, decide_again, hold_contest
from lanewise.fix.trial.ledger import Ledger
from lanewise.fix.trial.outcome import make_plan, untried_plan
from lanewise.fix.trial.shares import LAST_GRACE, LEARNING_S, PREPARE_SHARE, TIMING_S, captured_first, likeliest_first
from lanewise.fix.trial.variant_memory import Peaks
from lanewise.fix.trial.workbench import Bench, make_bench
from lanewise.fix.typed_torch import torch

__all__ = ["run_trial"]


def run_trial(
    subject: Subject,
    clock: Budget,
    *,
    goal: str,
    allow: Sequence[str],
    known: Known | None,
    only: Sequence[str],
    trace: bool,
    extra: Sequence[Candidate],
) -> Plan:
    """Try everything; see `optimize` for what the arguments mean.

    The program is left as it was, also by an error or an interrupt.
    """
    state, ledger = State(subject), Ledger(profilers_so_far())
    if note := profiler_note(ledger.profilers, cuda=subject.cuda):
        clock.tell(note)
    compiles = not only or any("compile" in name for name in only)
    if subject.cuda and compiles:
        start_workers()
    half, began = PREPARE_SHARE * clock.left, clock.spent
    prepare = max(half, LEARNING_S) if compiles else half
    try:
        with clock.at_most(prepare):
            bench = make_bench(subject, state, clock, goal=goal, allow=allow, records=trace)
        # Every case was run by the program twice and by its reference; a candidate runs it once, and a few calls more.
        ledger.expected_s = 0.5 * (clock.spent - began) + TIMING_S
        clock.lent += max(0.0, clock.spent - began - half)
    except OutOfTime:
        reason = f"learning how its results can be verified takes more than {prepare:.3g} s"
        return untried_plan(subject, clock, ledger, goal=goal, allow=allow, reason=f"{reason}: nothing was tried")
    except torch.OutOfMemoryError:
        reason = (
            f"the memory of {subject.device} does not hold what verifying takes: copies of a call and of its results"
        )
        return untried_plan(subject, clock, ledger, goal=goal, allow=allow, reason=f"{reason}; nothing was tried")
    finally:
        state.restore()
    try:
        peaks = Peaks(bench)
        candidates = captured_first(likeliest_first(_candidates(bench, known, only, extra), clock.left), clock.left)
        for at, candidate in enumerate(candidates):
            clock.tell(f"{candidate.name}: {candidate.what}")
            try_candidate(bench, ledger, peaks, known, candidate, candidates[at:])
        ledger.drop_chance(also_from_plan=goal != "memory")
        contest = hold_contest(bench, ledger)
        found = decide(bench, ledger, contest)
        # Nothing is timed from here on: listening to the host's allocator and recording both need a profiler.
        before_after = ""
        refused: set[str] = set()
        asked: list[str] = []
        while trace and ledger.kept and ledger.names != asked:
            proven = ledger.names
            before_after = _confirmed(bench, ledger, peaks)
            asked = ledger.names
            if asked != proven:
                # Of several parts the one that is not shown takes along those on top of it, which may do by themselves.
                refused.update(proven if len(proven) == 1 else ())
                found = decide_again(bench, ledger, contest, refused)
        if subject.cuda and not trace:
            ledger.notes.append("nothing was confirmed by a trace")
        return make_plan(bench, ledger, found, before_after=before_after)
    finally:
        ledger.disable_all()
        state.restore()


def _candidates(bench: Bench, known: Known | None, only: Sequence[str], extra: Sequence[Candidate]) -> list[Candidate]:
    found = [*catalogue(bench.subject, bench.work), *extra]
    names = {candidate.name for candidate in found}
    if unknown := [name for name in only if name not in names]:
        there = ", ".join(candidate.name for candidate in found) or "none"
        raise UsageError(f"no candidate called {', '.join(unknown)} here; there are: {there}")
    return order([candidate for candidate in found if not only or candidate.name in only], known)


def _confirmed(bench: Bench, ledger: Ledger, peaks: Peaks) -> str:
    """What the traces differ in; what they do not show is no longer kept. "" where there was no time for them."""
    clock = bench.clock
    try:
        with clock.at_most(clock.left + LAST_GRACE * clock.seconds):
            _remember_peaks(ledger, peaks)
            return credit(bench, ledger)
    except OutOfTime:
        ledger.notes.append("no time was left to record before and after: nothing was confirmed by a trace")
        return ""


def _remember_peaks(ledger: Ledger, peaks: Peaks) -> None:
    """The plan's peak, if no attempt has it; on the host, where the profiler has to listen, after the last timing."""
    if not any(attempt.peak_after >= 0 for attempt in ledger.attempts if attempt.outcome == "kept"):
        ledger.change(ledger.names[-1], **peaks.of(ledger.plan))
