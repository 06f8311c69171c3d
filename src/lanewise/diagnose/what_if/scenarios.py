"""The step as it is, and with what a report found mended: the findings that give most, each alone, and all together."""

from __future__ import annotations

from dataclasses import dataclass

from lanewise.diagnose.engine import evaluate, wish_of
from lanewise.diagnose.settings import Settings
from lanewise.diagnose.what_if.named import Named, of_finding
from lanewise.diagnose.what_if.predict import predict_named
from lanewise.measure.facts import Facts
from lanewise.replay.apply import apply
from lanewise.replay.change import Change
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate
from lanewise.replay.timetable import Timetable, timetable
from lanewise.report.gain import helps
from lanewise.report.model import Report
from lanewise.report.prediction import StepState

__all__ = ["ALL", "Scenario", "scenarios"]

ALL = "all"
"""Code of the scenario in which all of them are mended."""

_FINDINGS = 5


@dataclass(frozen=True, eq=False)
class Scenario:
    """A step with something mended.

    Attributes:
        code: a finding's code, ALL, or "" for the step as it is.
        mended: codes of what is mended.
        state: the step, without the profiler.
        graph: what waits for what in it; its first nodes are those of the step as it is.
        table: what happens when.
    """

    code: str
    mended: list[str]
    state: StepState
    graph: StepGraph
    table: Timetable


def scenarios(facts: Facts, report: Report) -> list[Scenario]:
    """The step as it is, then with each of the findings mended that give most; nothing where none would help."""
    codes = [finding.code for finding in report.findings if helps(finding)][:_FINDINGS]
    found = evaluate(facts, Settings(select=tuple(codes)))[0] if codes else []
    named = {rule.code: of_finding(rule, outcome) for rule, outcome in found if wish_of(rule, outcome) is not None}
    chosen = [named[code] for code in codes if code in named]
    groups = [[one] for one in chosen] + ([chosen] if len(chosen) > 1 else [])
    if not groups:
        return []
    base, predictions = facts.unprofiled, [predict_named(facts, group) for group in groups]
    now = Scenario("", [], predictions[0].now, base.graph, timetable(base.graph, base.replayed))
    pairs = zip(groups, predictions, strict=True)
    return [now, *(_scenario(base.graph, group, prediction.predicted) for group, prediction in pairs)]


def _scenario(base: StepGraph, mended: list[Named], state: StepState) -> Scenario:
    graph = apply(base, sum((one.wish.change for one in mended), Change()))
    codes = [one.asked for one in mended]
    return Scenario(codes[0] if len(codes) == 1 else ALL, codes, state, graph, timetable(graph, simulate(graph)))
