"""Evaluates rules and ranks what they find.

A rule says what would change; the step is replayed with the change. The best one is made first, the others on what it
leaves, so that gains add up and never exceed the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from msgspec import structs

from lanewise.diagnose.registry import builtin_rules, third_party_rules
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, Rule
from lanewise.diagnose.settings import Settings, check_settings
from lanewise.diagnose.where.places import places_of
from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES
from lanewise.measure.regime.time_classes import WORK
from lanewise.replay.best_first import Effect, Wish, best_first
from lanewise.replay.change import Change
from lanewise.replay.undistort import COSTS
from lanewise.report.model import Block, Check, Finding, TableBlock

__all__ = [
    "NAMES_A_CAUSE_FROM",
    "NOTE_BELOW",
    "diagnose",
    "effects_of",
    "evaluate",
    "evaluate_each",
    "host_factor",
    "in_order",
    "matters",
    "other_regime",
    "render_title",
    "wish_of",
]

# Below this share of the step a problem is a note (diagnoses.md section 2).
NOTE_BELOW = 0.01

# Where the step was timed without the profiler, the work that a change takes off the host is known within this factor: the
# sum is known, how it is spread is not.
_TIMED_SPREAD = 1.25

# From this share of the step on a finding that names a cause comes before remedies for anything.
NAMES_A_CAUSE_FROM = 0.05

_ORDER = {"validity": 0, "regime": 1, "problem": 2, "statement": 3, "note": 4}


def diagnose(facts: Facts, settings: Settings | None = None) -> tuple[list[Finding], list[Check]]:
    """Evaluate every wanted rule; findings in the order they are shown, and why the others found nothing.

    Raises:
        UsageError: the settings name a code or a threshold that does not exist, or a value of a wrong type.
    """
    found, checks = evaluate(facts, settings or Settings())
    return _rank(facts, found), checks


def evaluate(facts: Facts, settings: Settings) -> tuple[list[tuple[Rule, Found]], list[Check]]:
    """Every wanted rule that holds, and why the others found nothing. Raises as `diagnose` does."""
    return evaluate_each(
        settings,
        lambda rule: other_regime(rule, facts.regime.name) if rule.regimes else None,
        lambda rule: rule.check(facts, **settings.thresholds.get(rule.code, {})),
    )


def evaluate_each(
    settings: Settings, exempt: Callable[[Rule], NotApplicable | None], ask: Callable[[Rule], Outcome]
) -> tuple[list[tuple[Rule, Found]], list[Check]]:
    """Every wanted rule that holds, and why the others found nothing.

    Args:
        exempt: why a rule is not asked at all; None if it is. ask: what it says; an error becomes a check.

    Raises:
        UsageError: as `diagnose` does.
    """
    check_settings(settings)
    found: list[tuple[Rule, Found]] = []
    checks: list[Check] = []
    for rule in _wanted_rules(settings, checks):
        outcome: Outcome | None = exempt(rule)
        try:
            outcome = outcome or ask(rule)
        except Exception as error:  # one red row; the rest goes on
            checks.append(Check(rule.code, rule.name, "error", f"the rule failed: {_one_line(error)}"))
            continue
        if isinstance(outcome, Found):
            found.append((rule, outcome))
        else:
            checks.append(_check(rule, outcome))
    return found, checks


def other_regime(rule: Rule, regime: str) -> NotApplicable | None:
    """Why a rule does not apply to a run of this regime (a key of `REGIMES`); None if it does."""
    if not rule.regimes or regime in rule.regimes:
        return None
    meant = " or ".join(REGIMES[name][1] for name in rule.regimes)
    return NotApplicable(f"the run is {REGIMES[regime][1]}, the rule speaks of {meant} runs")


def wish_of(rule: Rule, outcome: Found) -> Wish | None:
    """The change that a finding asks for; None for one that only states something."""
    if rule.kind != "problem" or outcome.change is None:
        return None
    # What cannot be bounded well from the trace counts on what the others leave, too.
    return Wish(outcome.change, outcome.spread, rule.general or outcome.bound)


def effects_of(facts: Facts, wishes: Sequence[Wish]) -> list[Effect]:
    """What each of these gives, the best made first; what is only worth a note counts in no other's."""
    step = facts.unprofiled
    effects = best_first(
        step.graph,
        step.replayed.step_ns,
        step.step_ns,
        wishes,
        factor=host_factor(facts),
        least_ns=NOTE_BELOW * step.step_ns,
    )
    if step.faithful:
        return effects
    # The replay takes longer than the recording did: what it gives back beyond the device's idle time was never lost.
    idle = step.step_ns - sum(facts.steps.class_ns.get(name, 0.0) for name in WORK)
    return [
        effect if _touches_work(facts, wish.change) else _at_most(effect, idle)
        for wish, effect in zip(wishes, effects, strict=True)
    ]


def _touches_work(facts: Facts, change: Change) -> bool:
    """Whether a change takes away or changes work of the device."""
    gone = change.gone[facts.launches_inside[change.gone] > 0]
    return bool(len(gone) or len(change.shorter) or len(change.scaled))


def _at_most(effect: Effect, ns: float) -> Effect:
    most = max(0.0, ns)
    return replace(
        effect,
        alone=min(effect.alone, most),
        gain=min(effect.gain, most),
        low=min(effect.low, most),
        high=min(effect.high, most),
    )


def _with_doubt(facts: Facts, outcome: Found) -> Found:
    """A finding of a recording whose replay takes longer than it did: what it gives is a bound."""
    return outcome if facts.unprofiled.faithful else replace(outcome, bound=True, confidence="low")


def matters(facts: Facts, effect: Effect) -> bool:
    """Whether a change gives a measurable part of the step, alone or after others: otherwise its finding is a note."""
    if not facts.regime.measures_the_program:
        return False
    return max(effect.gain, effect.alone) >= NOTE_BELOW * facts.unprofiled.step_ns


def host_factor(facts: Facts) -> float:
    """The host's work without the profiler is known within this factor."""
    return _TIMED_SPREAD if facts.unprofiled.timed else COSTS.spread


def _wanted_rules(settings: Settings, checks: list[Check]) -> Iterable[Rule]:
    """The rules that the settings want, in catalogue order; a plug-in that cannot be loaded becomes a check."""
    rules = list(builtin_rules())
    for extra in third_party_rules():
        if isinstance(extra, Rule):
            rules.append(extra)
        else:
            name, error = extra
            checks.append(Check("EXT", name, "error", f"could not be loaded: {_one_line(error)}"))
    return [rule for rule in rules if settings.wants(rule)]


def _check(rule: Rule, outcome: Outcome) -> Check:
    """Why a rule found nothing."""
    match outcome:
        case Clear(reason):
            return Check(rule.code, rule.name, "clear", reason)
        case NotApplicable(reason):
            return Check(rule.code, rule.name, "not_applicable", reason)
        case NeedsCapture(record):
            return Check(rule.code, rule.name, "needs_capture", record)
        case Found():
            raise AssertionError("findings are ranked, not listed as checks")


def _rank(facts: Facts, found: list[tuple[Rule, Found]]) -> list[Finding]:
    """Findings with what they would give, in the order in which they are shown."""
    wishes = {rule.code: wish for rule, outcome in found if (wish := wish_of(rule, outcome)) is not None}
    effects = effects_of(facts, list(wishes.values()))
    of_rule = dict(zip(wishes, effects, strict=True))
    # Without a steady state a gain per step rests on little (MEA110).
    unsteady = any(rule.code == "MEA110" for rule, _ in found)
    findings = [
        _finding(facts, rule, _with_doubt(facts, outcome), of_rule.get(rule.code, _NOTHING), unsteady=unsteady)
        for rule, outcome in found
    ]
    return in_order(findings, [rule for rule, _ in found], facts.unprofiled.step_ns)


def in_order(findings: Iterable[Finding], rules: Iterable[Rule], step_ns: float) -> list[Finding]:
    """Findings in the order in which they are shown: a remedy for anything after what names a cause that matters by itself.
    What each leaves is the step after it and those shown before it."""
    late = {rule.code for rule in rules if rule.general}
    enough = NAMES_A_CAUSE_FROM * step_ns / 1e3

    def place(finding: Finding) -> tuple[int, bool, float, float, str]:
        gain, alone = finding.recoverable_us_per_step, finding.alone_us_per_step
        cause = finding.code not in late and min(gain, alone) >= enough
        # Causes stand as they were made, the best first: what the next gives is after those before it.
        first = -finding.leaves_us_per_step if cause else -gain
        return _ORDER[finding.kind], not cause, first, -alone, finding.code

    shown: list[Finding] = []
    left = step_ns / 1e3
    for finding in sorted(findings, key=place):
        if finding.kind == "problem":
            left = max(0.0, left - finding.recoverable_us_per_step)
            finding = structs.replace(finding, leaves_us_per_step=round(left, 3))
        shown.append(finding)
    return shown


_NOTHING = Effect(place=0, alone=0.0, gain=0.0, low=0.0, high=0.0, leaves=0.0)


def _finding(facts: Facts, rule: Rule, outcome: Found, effect: Effect, *, unsteady: bool) -> Finding:
    kind = rule.kind
    if kind == "problem" and not matters(facts, effect):
        # Of a recording of something else it is worth knowing, but what it would give cannot be told.
        kind = "note" if facts.regime.measures_the_program else "statement"
        effect = replace(effect, gain=0.0, low=0.0, high=0.0)
    return Finding(
        code=rule.code,
        name=rule.name,
        title=render_title(outcome.title or rule.title, outcome),
        values=dict(outcome.values),
        recoverable_us_per_step=round(effect.gain / 1e3, 3),
        confidence="low" if unsteady and kind == "problem" else outcome.confidence,
        steps=_step_numbers(facts, outcome),
        evidence=list(outcome.evidence) if facts.trace.steps.recorded else [_of_the_whole(b) for b in outcome.evidence],
        fix=outcome.fix or rule.section("Fix"),
        verify=rule.section("Verify"),
        location=outcome.location,
        kind=kind,
        places=places_of(facts, outcome),
        low_us_per_step=round(effect.low / 1e3, 3),
        high_us_per_step=round(effect.high / 1e3, 3),
        alone_us_per_step=round(effect.alone / 1e3, 3),
        leaves_us_per_step=round(effect.leaves / 1e3, 3),
        bound=outcome.bound,
    )


def _of_the_whole(block: Block) -> Block:
    """A table of a recording without marked steps: its numbers are those of the whole."""
    if not isinstance(block, TableBlock):
        return block
    columns = [
        structs.replace(column, label="times" if column.label == "per step" else column.label.replace(" per step", ""))
        for column in block.columns
    ]
    return structs.replace(block, title=block.title.replace(", per step", "").replace(" per step", ""), columns=columns)


def render_title(template: str, outcome: Found) -> str:
    """A title with its numbers in."""
    return template.format_map({name: str(value) for name, value in outcome.values.items()})


def _step_numbers(facts: Facts, outcome: Found) -> list[int]:
    if not facts.trace.steps.recorded:
        return []
    numbers = facts.trace.steps.number
    if len(outcome.steps):
        return [int(numbers[row]) for row in outcome.steps]
    return [int(number) for number, steady in zip(numbers, facts.steps.steady, strict=True) if steady]


def _one_line(error: Exception) -> str:
    """An error as a short text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
