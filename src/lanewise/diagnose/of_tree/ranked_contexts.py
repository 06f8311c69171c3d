"""Evaluates the rules that a tree can answer, and bounds what each finding gives.

A tree has no graph to replay. What goes away at most is added up, each context once; of the host's time no more than the
device waits for it, of the device's only copies where the host sets the pace. So gains are bounds, and said as such.
"""

from __future__ import annotations

import inspect

import numpy as np
from msgspec import structs

from lanewise.diagnose.engine import NAMES_A_CAUSE_FROM, NOTE_BELOW, evaluate_each, in_order, other_regime, render_title
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Found, NotApplicable, Outcome, Rule, Saving
from lanewise.diagnose.settings import Settings
from lanewise.report.model import Check, Finding

__all__ = ["ONLY_A_TRACE", "diagnose_tree"]

ONLY_A_TRACE = "a tree has no timeline, no shapes and no arguments: only a trace can tell (lanewise run)"


def diagnose_tree(contexts: Contexts, settings: Settings | None = None) -> tuple[list[Finding], list[Check]]:
    """Evaluate every wanted rule; findings in the order they are shown, and why the others found nothing.

    Raises:
        UsageError: the settings name a code or a threshold that does not exist, or a value of a wrong type.
    """
    settings = settings or Settings()
    found, checks = evaluate_each(
        settings, lambda rule: _exempt(rule, contexts), lambda rule: _ask(rule, contexts, settings)
    )
    return _rank(contexts, found), checks


def _exempt(rule: Rule, contexts: Contexts) -> NotApplicable | None:
    return other_regime(rule, contexts.regime) if rule.of_tree is not None else NotApplicable(ONLY_A_TRACE)


def _ask(rule: Rule, contexts: Contexts, settings: Settings) -> Outcome:
    assert rule.of_tree is not None
    given = {**rule.thresholds, **settings.thresholds.get(rule.code, {})}
    named = inspect.signature(rule.of_tree).parameters
    return rule.of_tree(contexts, **{name: value for name, value in given.items() if name in named})


def _rank(contexts: Contexts, found: list[tuple[Rule, Found]]) -> list[Finding]:
    """The best one first, then what is best of those left: a remedy for anything after what names a cause that matters."""
    step = contexts.step.ns
    general = {rule.code for rule, _ in found if rule.general}
    findings = [_finding(contexts, rule, outcome) for rule, outcome in found]
    nothing = Saving(np.zeros(len(contexts.tree)), np.zeros(len(contexts.tree)))
    saves = {rule.code: outcome.saves or nothing for rule, outcome in found if rule.kind == "problem"}
    done, left = nothing, step
    gains: dict[str, tuple[float, float]] = {}
    while len(gains) < len(saves):
        rest = {code: _both(done, saving) for code, saving in saves.items() if code not in gains}
        gain_of = {code: _gained(contexts, both) - _gained(contexts, done) for code, both in rest.items()}
        enough = NAMES_A_CAUSE_FROM * step
        best = max(rest, key=lambda code: (code not in general and gain_of[code] >= enough, gain_of[code], code))
        gain = max(0.0, gain_of[best])
        # What is only worth a note counts in no other's.
        if gain >= NOTE_BELOW * step:
            done, left = rest[best], max(0.0, left - gain)
        gains[best] = gain, left
    return in_order(
        [_with_gain(finding, *gains[finding.code], step) if finding.code in gains else finding for finding in findings],
        [rule for rule, _ in found],
        step,
    )


def _both(one: Saving, other: Saving) -> Saving:
    return Saving(np.maximum(one.host, other.host), np.maximum(one.device, other.device))


def _gained(contexts: Contexts, saved: Saving) -> float:
    """What the step is shorter by at most, ns."""
    step, shares = contexts.step.ns, contexts.shares
    if contexts.regime == "undetermined":
        return min(step, float(saved.host.sum() + saved.device.sum()))
    waits = step * shares.get("host", 0.0)
    # Where the host sets the pace, the device's work is hidden behind it, but for copies that the host waits for.
    counts = contexts.copies("HtoD", "DtoH") if contexts.regime == "host" else np.ones(len(saved.device), dtype=bool)
    device = float(saved.device[counts].sum())
    return min(float(saved.host.sum()), waits) + min(device, step - waits)


def _finding(contexts: Contexts, rule: Rule, outcome: Found) -> Finding:
    alone = _gained(contexts, outcome.saves) if outcome.saves is not None and rule.kind == "problem" else 0.0
    return Finding(
        code=rule.code,
        name=rule.name,
        title=render_title(outcome.title or rule.title, outcome),
        values=dict(outcome.values),
        recoverable_us_per_step=round(alone / 1e3, 3),
        confidence=outcome.confidence,
        steps=list(contexts.tree.info.steps) if contexts.tree.info.watched is None else [],
        evidence=list(outcome.evidence),
        fix=outcome.fix or rule.section("Fix"),
        verify=rule.section("Verify"),
        location=outcome.location,
        kind=rule.kind,
        alone_us_per_step=round(alone / 1e3, 3),
        bound=True,
        per_step=contexts.marked,
    )


def _with_gain(finding: Finding, gain: float, left: float, step: float) -> Finding:
    least = NOTE_BELOW * step
    note = max(gain, finding.alone_us_per_step * 1e3) < least
    gain = gain if gain >= least else 0.0
    return structs.replace(
        finding,
        kind="note" if note else finding.kind,
        recoverable_us_per_step=round(gain / 1e3, 3),
        high_us_per_step=round(gain / 1e3, 3),
        leaves_us_per_step=round(left / 1e3, 3),
    )
