"""`explain`: a Trace -> a Report."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lanewise._version import __version__
from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.health_notes import health_notes, settings_notes
from lanewise.diagnose.of_tree.explain_tree import explain_tree
from lanewise.diagnose.sections.statements import report_statements
from lanewise.diagnose.settings import Settings
from lanewise.diagnose.summary import (
    chain_block,
    gap_block,
    regime_summary,
    report_tables,
    source_summary,
    step_block,
    verdict,
)
from lanewise.measure.distributed.job import job_of
from lanewise.measure.facts import Facts
from lanewise.measure.prefetch import measured_ahead
from lanewise.report.model import SCHEMA, Report, StepsSummary
from lanewise.report.priced import cost_of, priced
from lanewise.trace.metadata import from_metadata
from lanewise.trace.model import Trace
from lanewise.trace.reader import opened
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import is_tree, load

__all__ = ["explain", "facts_of", "report_of"]


def explain(
    trace: Trace | Tree | str | os.PathLike[str],
    *,
    unprofiled_us: float | None = None,
    settings: Settings | None = None,
    peers: Sequence[Trace | str | os.PathLike[str]] = (),
) -> Report:
    """Explain a trace, or a calling-context tree.

    Args:
        trace: what `lanewise.read` returned, or what it would read: a path, or a directory (its newest trace); or a tree
            or a file of `lanewise.watch`, for which the other arguments but `settings` mean nothing.
        unprofiled_us: step time measured without a profiler, us; overrides what the recorder wrote into the trace.
        settings: which rules run, and their thresholds; `load_settings()` reads those of the project.
        peers: traces of the other ranks of the same job, recorded over the same steps.

    Raises:
        UsageError: the settings name a code or a threshold that does not exist; or the peers are no ranks of this job.
        InputError: a file that cannot be read.
    """
    if isinstance(trace, Tree):
        return explain_tree(trace, settings=settings)
    if isinstance(trace, str | os.PathLike) and is_tree(path := os.fspath(trace)):
        return explain_tree(load(path), path=path, size=os.path.getsize(path), settings=settings)
    facts = facts_of(opened(trace), unprofiled_us=unprofiled_us)
    return report_of(job_of([facts, *(facts_of(opened(peer)) for peer in peers)]) if peers else facts, settings)


def facts_of(trace: Trace, *, unprofiled_us: float | None = None) -> Facts:
    """The measures of a trace; a step time in us, if given, overrides what the recorder wrote into it."""
    return Facts(trace, unprofiled_ns=round(unprofiled_us * 1e3) if unprofiled_us else None)


def report_of(facts: Facts, settings: Settings | None = None) -> Report:
    """The report on what was measured: for whoever needs the measures as well."""
    with measured_ahead(facts):
        return _report(facts, settings)


def _report(facts: Facts, settings: Settings | None) -> Report:
    settings = settings or Settings()
    findings, checks = diagnose(facts, settings)
    steps = facts.trace.steps
    recorded = from_metadata(facts.trace.metadata)
    cost = cost_of(facts.steps.step_ns / 1e3, recorded.energy if recorded is not None else None, settings.price)
    return Report(
        schema=SCHEMA,
        version=__version__,
        source=source_summary(facts),
        health=[*health_notes(facts), *settings_notes(settings)],
        steps=StepsSummary(
            source=steps.source,
            count=len(steps) if steps.recorded else 0,
            steady=[int(n) for n, s in zip(steps.number, facts.steps.steady, strict=True) if s and steps.recorded],
            table=step_block(facts),
            gaps=gap_block(facts),
        ),
        regime=regime_summary(facts, findings),
        findings=priced(findings, cost),
        checks=checks,
        tables=report_tables(facts),
        chain=chain_block(facts),
        verdict=verdict(facts, findings),
        statements=report_statements(facts),
        cost=cost,
    )
