"""The plan as it is handed out: what is kept, with the report on everything that was tried."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lanewise._version import __version__
from lanewise.fix.model import SCHEMA, PlanReport
from lanewise.fix.plans.fingerprint import machine_of
from lanewise.fix.plans.plan import Plan
from lanewise.fix.subject import Subject
from lanewise.fix.time_budget import Budget
from lanewise.fix.trial.confidence import confidence, profiler_note
from lanewise.fix.trial.final import EAGER, Comparison
from lanewise.fix.trial.ledger import Ledger
from lanewise.fix.trial.workbench import Bench

__all__ = ["make_plan", "untried_plan"]


def make_plan(bench: Bench, ledger: Ledger, found: Comparison, *, before_after: str) -> Plan:
    """The plan, not applied, with its counters at zero."""
    ledger.notes += [f"{one.candidate.name}: {one.candidate.caveat}" for one in ledger.kept if one.candidate.caveat]
    report = _report(bench.subject, bench.clock, ledger, found, goal=bench.goal, reference=bench.gate.what)
    report = msgspec.structs.replace(report, before_after=before_after)
    bench.clock.tell(f"done: {' + '.join(report.winner) or 'nothing kept'}")
    plan = Plan(bench.subject, report, [(one.candidate, one.variant) for one in ledger.kept], allowed=bench.allow)
    plan.reset_counts()
    return plan


def _exceeded(clock: Budget) -> list[str]:
    if not clock.lent:
        return []
    what = "torch.compile, which anybody has with one line, is tried whatever the budget"
    return [f"{clock.lent:.1f} s more than the budget of {clock.seconds:.3g} s were spent: {what}"]


def untried_plan(
    subject: Subject, clock: Budget, ledger: Ledger, *, goal: str, allow: Sequence[str], reason: str
) -> Plan:
    """A plan that changes nothing, because nothing could be tried, and says why."""
    ledger.notes.append(reason)
    clock.tell(reason)
    nothing = Comparison([], None, None, EAGER)
    return Plan(subject, _report(subject, clock, ledger, nothing, goal=goal, reference=""), [], allowed=allow)


def _report(
    subject: Subject, clock: Budget, ledger: Ledger, found: Comparison, *, goal: str, reference: str
) -> PlanReport:
    note = profiler_note(ledger.profilers, cuda=subject.cuda)
    return PlanReport(
        schema=SCHEMA,
        version=__version__,
        subject=subject.name,
        kind=subject.kind,
        goal=goal,
        machine=dict(machine_of(subject)),
        attempts=ledger.attempts,
        winner=ledger.names,
        final=found.final,
        against_eager=found.eager if ledger.kept else None,
        against_best=found.other if ledger.kept else None,
        best_alternative=found.best,
        reference=reference,
        notes=[*([note] if note else []), *_exceeded(clock), *ledger.notes],
        before_after="",
        seconds=clock.spent,
        budget_s=clock.seconds,
        profilers=ledger.profilers,
        confidence=confidence(ledger.profilers, cuda=subject.cuda),
    )
