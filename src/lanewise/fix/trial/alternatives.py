"""The compiler and the graph on the program as it was: what was tried was built on what had been kept before."""

from __future__ import annotations

from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.candidates.capturing import put_right
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.time_budget import OutOfTime
from lanewise.fix.trial.ledger import Kept, Ledger
from lanewise.fix.trial.prepare import first_calls, wait_after_compiling
from lanewise.fix.trial.workbench import Bench

__all__ = ["build_alternatives"]


def build_alternatives(bench: Bench, ledger: Ledger) -> None:
    """Build and check those that were timed on top of something else; what did not work out is noted."""
    tried = {attempt.name for attempt in ledger.attempts if attempt.timing is not None}
    tried -= {one.candidate.name for one in ledger.alternatives} | ledger.made_room
    for candidate in catalogue(bench.subject, bench.work):
        if not candidate.alternative or candidate.name not in tried:
            continue
        left = bench.clock.left - bench.reserve_s(ledger.arms)
        if left <= ledger.compile_s:
            ledger.notes.append(f"no time was left to measure {candidate.name} on the program as it was")
            continue
        made: list[Variant] = []
        try:
            with put_right(bench.subject.device), bench.clock.at_most(left):
                made.append(candidate.build(bench.subject))
                first_calls(bench, made[0], compiles=candidate.compiles)
                if bench.gate.check(candidate, made[0]).passed:
                    ledger.alternatives.append(Kept(candidate, made[0]))
        except (OutOfTime, Exception) as error:
            what = type(error).__name__
            ledger.notes.append(f"{candidate.name} could not be measured on the program as it was: {what}")
        finally:
            for variant in made:
                variant.disable()
            bench.state.restore()
        wait_after_compiling(bench, ledger, candidate.name)
