"""Evaluates rules and ranks what they find (diagnoses.md section 2).

Gains are upper bounds. Each is capped by the time its side has in a step, and the shown ones by what higher findings of
that side left over, so that they never add up to more than the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lanewise.diagnose.places import places_of
from lanewise.diagnose.registry import builtin_rules, third_party_rules
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, Rule
from lanewise.diagnose.settings import Settings, check_settings
from lanewise.measure.facts import Facts
from lanewise.report.model import Check, Finding
from lanewise.trace.schema import Kind

__all__ = ["diagnose"]

# Side of a finding -> class of time that it can give back.
_BUDGET = {"host": "host", "device": "compute", "transfer": "transfer", "communication": "communication"}
# Classes that a side may draw on when its own is used up: without a copy, the host need not prepare it either.
_ALSO = {"transfer": ("host",)}

# Below this share of the step a problem is a note (diagnoses.md section 2).
_NOTE_BELOW = 0.01

# Waiting counts beside the bottleneck from this share of the step on.
_EXPOSED_FROM = 0.10

_ORDER = {"validity": 0, "regime": 1, "problem": 2, "statement": 3, "note": 4}


def diagnose(facts: Facts, settings: Settings | None = None) -> tuple[list[Finding], list[Check]]:
    """Evaluate every wanted rule; findings in the order they are shown, and why the others found nothing.

    Raises:
        UsageError: the settings name a code or a threshold that does not exist, or a value of a wrong type.
    """
    settings = settings or Settings()
    check_settings(settings)
    found: list[tuple[Rule, Found]] = []
    checks: list[Check] = []
    for rule in _rules(settings, checks):
        outcome = _evaluate(rule, facts, settings, checks)
        if isinstance(outcome, Found):
            found.append((rule, outcome))
        elif outcome is not None:
            checks.append(_check(rule, outcome))
    return _rank(facts, found), checks


def _rules(settings: Settings, checks: list[Check]) -> Iterable[Rule]:
    rules = list(builtin_rules())
    for extra in third_party_rules():
        if isinstance(extra, Rule):
            rules.append(extra)
        else:
            name, error = extra
            checks.append(Check("EXT", name, "error", f"could not be loaded: {_one_line(error)}"))
    return [rule for rule in rules if settings.wants(rule)]


def _evaluate(rule: Rule, facts: Facts, settings: Settings, checks: list[Check]) -> Outcome | None:
    if rule.regimes and facts.regime.name not in rule.regimes:
        return NotApplicable(f"the run is {facts.regime.name}, the rule speaks of {' or '.join(rule.regimes)} runs")
    try:
        return rule.check(facts, **settings.thresholds.get(rule.code, {}))
    except Exception as error:  # one red row; the rest goes on
        checks.append(Check(rule.code, rule.name, "error", f"the rule failed: {_one_line(error)}"))
        return None


def _check(rule: Rule, outcome: Outcome) -> Check:
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
    step_ns = max(1.0, facts.steps.step_ns)
    whole = _Budgets(facts)
    left = _Budgets(facts)

    def capped(pair: tuple[Rule, Found]) -> float:
        rule, outcome = pair
        side = outcome.side or rule.side
        # Host costs read off the trace are inflated by profiling; the budget is not.
        inflated = side == "host" if outcome.inflated is None else outcome.inflated
        return min(outcome.gain_ns * (facts.steps.host_scale if inflated else 1.0), whole.of(side, outcome.copies_ns))

    ordered = _special_first(sorted(found, key=lambda pair: (_ORDER[pair[0].kind], -capped(pair), pair[0].code)))
    # Without a steady state a gain per step rests on little (MEA110).
    unsteady = any(rule.code == "MEA110" for rule, _ in found)
    findings: list[Finding] = []
    claims: list[_Claim] = []
    for rule, outcome in ordered:
        side = outcome.side or rule.side
        on = rule.kind in {"validity", "regime"} or _on_bottleneck(facts, side)
        events = _claimed(facts, outcome)
        # What gives nothing back in this run takes nothing from what does.
        owner, own_share = _owner(facts, outcome, events, side, [c for c in claims if c.on_bottleneck or not on])
        potential = capped((rule, outcome))
        recoverable = (
            min(potential * own_share, left.of(side, outcome.copies_ns))
            if on and not owner and rule.kind == "problem"
            else 0.0
        )
        kind = rule.kind
        if kind == "problem" and potential < _NOTE_BELOW * step_ns and outcome.gain_ns < _NOTE_BELOW * step_ns:
            kind, recoverable = "note", 0.0
        left.take(side, recoverable, outcome.copies_ns)
        if len(events) and not owner:
            claims.append(_Claim(rule.code, side, on, outcome.gain_ns * own_share, events))
        findings.append(
            Finding(
                code=rule.code,
                name=rule.name,
                title=render_title(outcome.title or rule.title, outcome),
                values=dict(outcome.values),
                side=side,
                recoverable_us_per_step=round(recoverable / 1e3, 3),
                potential_us_per_step=round(outcome.gain_ns / 1e3, 3) if math.isfinite(outcome.gain_ns) else 0.0,
                on_bottleneck=on,
                confidence="low" if unsteady and kind == "problem" else outcome.confidence,
                steps=_step_numbers(facts, outcome),
                evidence=list(outcome.evidence),
                fix=outcome.fix or rule.section("Fix"),
                verify=rule.section("Verify"),
                location=outcome.location,
                claims_from=owner,
                kind=kind,
                places=places_of(facts, outcome),
            )
        )
    findings.sort(
        key=lambda f: (
            _ORDER[f.kind],
            not f.on_bottleneck,
            bool(f.claims_from),
            -f.recoverable_us_per_step,
            -f.potential_us_per_step,
            f.code,
        )
    )
    return findings


class _Budgets:
    """Time per step, ns, that findings can still give back, by side."""

    def __init__(self, facts: Facts) -> None:
        self._left = {name: facts.steps.class_ns.get(name, 0.0) for name in _BUDGET.values()}

    def of(self, side: str, copies_ns: float = 0.0) -> float:
        """What a finding of a side can give back at most; `copies_ns` as in `Found`."""
        if side == "any":
            return max(self._left.values())
        return sum(self._left[name] for name in self._classes(side)) + self._copies(side, copies_ns)

    def take(self, side: str, time_ns: float, copies_ns: float = 0.0) -> None:
        """A finding gives this back: no other can."""
        own = self._copies(side, copies_ns)
        for name in self._classes(side):
            part = min(time_ns, self._left[name])
            self._left[name] -= part
            time_ns -= part
        self._left["transfer"] -= min(time_ns, own)

    def _copies(self, side: str, copies_ns: float) -> float:
        return min(copies_ns, self._left["transfer"]) if side == "host" else 0.0

    def _classes(self, side: str) -> tuple[str, ...]:
        if side == "any":
            return tuple(sorted(self._left, key=lambda name: -self._left[name]))
        return (_BUDGET[side], *_ALSO.get(side, ())) if side in _BUDGET else ()


def _special_first(found: list[tuple[Rule, Found]]) -> list[tuple[Rule, Found]]:
    """The same findings, each after those that it gives way to."""
    waiting, ordered = list(found), []
    while waiting:
        codes = [rule.code for rule, _ in waiting]
        free = (at for at, (rule, _) in enumerate(waiting) if not _waits_for(rule, codes))
        ordered.append(waiting.pop(next(free, 0)))
    return ordered


def _waits_for(rule: Rule, codes: list[str]) -> bool:
    return bool(rule.yields_to) and any(code != rule.code and code.startswith(rule.yields_to) for code in codes)


def render_title(template: str, outcome: Found) -> str:
    """A title with its numbers in."""
    return template.format_map({name: str(value) for name, value in outcome.values.items()})


def _on_bottleneck(facts: Facts, side: str) -> bool:
    """Whether time given back on a side shortens the step.

    The side that binds the run does. So does time in which the device waits for the host, or the host for a copy, whatever
    binds the rest of the run. Shorter kernels and messages do not while the host is behind: it never waited for them.
    """
    regime = facts.regime
    if side in {"any", "memory"} or regime.name in {"mixed", "undetermined"} or regime.name == _BUDGET.get(side):
        return True
    return side in {"host", "transfer"} and regime.shares.get(_BUDGET[side], 0.0) >= _EXPOSED_FROM


class _Claim(NamedTuple):
    """The events that a finding owns (sorted), and what it would give back by them, ns per step."""

    code: str
    side: str
    on_bottleneck: bool
    gain_ns: float
    events: np.ndarray


def _claimed(facts: Facts, outcome: Found) -> np.ndarray:
    """Events that a finding claims, sorted: a call stands for the device work that it launches, and the other way
    round."""
    if not outcome.claims:
        return np.empty(0, dtype=np.int64)
    trace, launch = facts.trace, facts.trace.links.launch
    mine = np.zeros(len(trace) + 1, dtype=bool)
    mine[np.asarray(outcome.claims, dtype=np.int64)] = True
    work = mine[trace.device_work]
    launched = mine[launch] & (launch >= 0)
    mine[launch[work & (launch >= 0)]] = True
    mine[trace.device_work[launched]] = True
    return np.flatnonzero(mine[:-1])


def _owner(facts: Facts, outcome: Found, events: np.ndarray, side: str, claims: list[_Claim]) -> tuple[str, float]:
    """Code of the higher finding that owns this one's events ("" if none does), and the share of the gain that is left.

    No event counts twice: what higher findings give back by shared events is taken off. A finding that has no event of
    its own, or loses more than half of both its events and its gain, says nothing new.
    """
    free = np.ones(len(events), dtype=bool)
    taken, owner, most = 0.0, "", 0
    for claim in claims:
        shared = np.isin(events, claim.events, assume_unique=True)
        number = int(np.count_nonzero(shared))
        if not number:
            continue
        # Time of another side is not comparable: there the events themselves tell what part of the gain is gone.
        same = claim.side == side
        whole = claim.events if same else events
        part = _weight(facts, events[shared], side) / max(1.0, _weight(facts, whole, side))
        taken += min(1.0, part) * (claim.gain_ns if same else outcome.gain_ns)
        free &= ~shared
        if number > most:
            owner, most = claim.code, number
    left = max(0.0, 1.0 - taken / outcome.gain_ns) if outcome.gain_ns > 0 else 1.0
    number = int(np.count_nonzero(free))
    if owner and (number == 0 or (number * 2 < len(events) and (left < 0.5 or outcome.gain_ns <= 0))):
        return owner, 0.0
    return "", left


def _weight(facts: Facts, events: np.ndarray, side: str) -> float:
    """Time of the events on a side, ns; of all of them where the side has none."""
    trace = facts.trace
    on_device = np.isin(trace.kind[events], np.array([Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET], dtype=np.uint8))
    own = events[on_device == (side in {"device", "communication"})]
    return float(trace.duration[own if len(own) else events].sum())


def _step_numbers(facts: Facts, outcome: Found) -> list[int]:
    if not facts.trace.steps.recorded:
        return []
    numbers = facts.trace.steps.number
    if len(outcome.steps):
        return [int(numbers[row]) for row in outcome.steps]
    return [int(number) for number, steady in zip(numbers, facts.steps.steady, strict=True) if steady]


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
