"""The plan as it is handed out: what is kept, with the report on everything that was tried."""

from __future__ import annotations

from lanewise._version import __version__
from lanewise.fix.fingerprint import machine_of
from lanewise.fix.model import SCHEMA, PlanReport
from lanewise.fix.plan import Plan
from lanewise.fix.trial.bench import Bench
from lanewise.fix.trial.confidence import confidence, profiler_note
from lanewise.fix.trial.final import Comparison
from lanewise.fix.trial.ledger import Ledger

__all__ = ["make_plan"]


def make_plan(bench: Bench, ledger: Ledger, found: Comparison, *, before_after: str) -> Plan:
    """The plan, not applied, with its counters at zero."""
    cuda = bench.subject.cuda
    note = profiler_note(ledger.profilers, cuda=cuda)
    report = PlanReport(
        schema=SCHEMA,
        version=__version__,
        subject=bench.subject.name,
        kind=bench.subject.kind,
        goal=bench.goal,
        machine=dict(machine_of(bench.subject)),
        attempts=ledger.attempts,
        winner=ledger.names,
        final=found.final,
        against_eager=found.eager if ledger.kept else None,
        against_best=found.other if ledger.kept else None,
        best_alternative=found.best,
        reference=bench.gate.what,
        notes=[*([note] if note else []), *ledger.notes],
        before_after=before_after,
        seconds=bench.clock.spent,
        budget_s=bench.clock.seconds,
        profilers=ledger.profilers,
        confidence=confidence(ledger.profilers, cuda=cuda),
    )
    bench.clock.tell(f"done: {' + '.join(report.winner) or 'nothing kept'}")
    plan = Plan(bench.subject, report, [(one.candidate, one.variant) for one in ledger.kept], allowed=bench.allow)
    plan.reset_counts()
    return plan
