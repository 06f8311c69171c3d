"""One rule on one built trace: its outcome, checked for what every output needs, and what its change would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lanewise.diagnose.engine import render_title
from lanewise.diagnose.registry import find_rule
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome
from lanewise.measure.facts import Facts
from lanewise.replay.apply import apply
from lanewise.replay.simulate import simulate
from lanewise.report.model import TableBlock, TextBlock
from lanewise.trace.model import Trace

__all__ = ["Seen", "cleared", "found", "measured", "needed", "outcome", "skipped", "title"]


@dataclass(frozen=True)
class Seen(Found):
    """A finding, and what its change gives by itself where the recorded steps are replayed with it, ns per step."""

    gain_ns: float = 0.0


def outcome(code: str, trace: Trace, *, unprofiled_us: float | None = None, **thresholds: Any) -> Outcome:
    """What a rule says about a trace. A finding's title and evidence must be complete."""
    rule = find_rule(code)
    # What is built is meant as it stands: nothing of it is the profiler's.
    timed = unprofiled_us * 1e3 if unprofiled_us else Facts(trace).unprofiled.recorded_ns
    facts = Facts(trace, unprofiled_ns=round(timed))
    if rule.regimes and facts.regime.name not in rule.regimes:
        return NotApplicable("another regime")
    result = rule.check(facts, **thresholds)
    if isinstance(result, Found):
        assert "{" not in render_title(result.title or rule.title, result)
        for block in result.evidence:
            if isinstance(block, TableBlock):
                assert block.rows, f"{block.title}: no rows"
                assert all({c.key for c in block.columns} == row.keys() for row in block.rows)
            if isinstance(block, TextBlock):
                assert block.template.format_map({k: str(v) for k, v in block.values.items()})
    return measured(facts, result)


def measured(facts: Facts, result: Outcome) -> Outcome:
    """The same outcome; of a finding with what its change gives."""
    if not isinstance(result, Found):
        return result
    gain = 0.0
    if result.change is not None:
        gain = simulate(facts.graph).step_ns - simulate(apply(facts.graph, result.change)).step_ns
    return Seen(**vars(result), gain_ns=gain)


def found(code: str, trace: Trace, **options: Any) -> Seen:
    """The finding of a rule that must fire."""
    result = outcome(code, trace, **options)
    assert isinstance(result, Seen), result
    return result


def cleared(code: str, trace: Trace, **options: Any) -> str:
    """The reason of a rule that must be clear."""
    result = outcome(code, trace, **options)
    assert isinstance(result, Clear), result
    return result.reason


def skipped(code: str, trace: Trace, **options: Any) -> str:
    """The reason of a rule that must not be applicable."""
    result = outcome(code, trace, **options)
    assert isinstance(result, NotApplicable), result
    return result.reason


def needed(code: str, trace: Trace, **options: Any) -> str:
    """What a rule that cannot tell asks to record."""
    result = outcome(code, trace, **options)
    assert isinstance(result, NeedsCapture), result
    return result.record


def title(code: str, result: Found) -> str:
    """The sentence that a finding shows."""
    return render_title(result.title or find_rule(code).title, result)
