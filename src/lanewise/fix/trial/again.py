"""What is left of a plan after a part of it was dropped, measured once more."""

from __future__ import annotations

from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.timing import NULL, Schedule, arm_times, measure, timing_of
from lanewise.fix.trial.bench import LONGEST_TIMING_S, Bench
from lanewise.fix.trial.final import EAGER, PLAN, Comparison
from lanewise.fix.trial.ledger import Ledger, said

__all__ = ["compare_again"]


def compare_again(bench: Bench, ledger: Ledger) -> Comparison:
    """Time what is kept against eager; it is dropped if it is not faster by itself."""
    ledger.notes.append("measured again after a part was not credited, in a process that had had a profiler attached")
    arms: dict[str, Variant | None] = {EAGER: None, NULL: None, PLAN: ledger.plan}
    schedule = Schedule(max(1.0, min(LONGEST_TIMING_S, bench.clock.left)))
    samples = measure(bench.subject, bench.state, arms, schedule)
    eager = timing_of(samples.rounds, EAGER, PLAN, looks=1)
    if eager.verdict != "faster":
        ledger.drop(ledger.names[0], "not faster", f"not faster by itself: {said(eager)}")
    return Comparison([time for time in arm_times(samples.rounds) if time.name != NULL], eager, eager, EAGER)
