"""What a diagnosis is: a documented pure function from facts to an outcome.

    @rule("LAU101", "many-tiny-kernels", side="host", title="{launches} launches per step ...", needs=("launches",))
    def many_tiny_kernels(facts: Facts, *, launches_from: int = 20) -> Outcome:
        '''One sentence: what it is.

        Why it costs: ...
        Fix: ...
        Verify: ...
        Silent: ...
        Source: ...
        '''

The docstring is the documentation page; its `Fix:` and `Verify:` paragraphs are what a finding shows. Keyword defaults
are the thresholds that settings may override.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lanewise.report.model import Block, Confidence, Location, Side
from lanewise.report.quantity import Quantity

__all__ = ["Clear", "Found", "NeedsCapture", "NotApplicable", "Outcome", "Rule", "rule"]

Kind = Literal["validity", "regime", "problem", "statement"]


@dataclass(frozen=True)
class Found:
    """The rule holds.

    Attributes:
        values: numbers for the title template.
        gain_ns: upper bound on the time per step it costs on its own side, ns; 0 for a statement.
        evidence: blocks that show it.
        confidence: see `Finding.confidence`.
        steps: rows of the step table it was seen in; empty for all steady ones.
        location: where in the program.
        side: overrides the rule's side where it depends on the run.
        claims: ids of the events whose time this finding owns; a lower finding that shares more than half of its own
            claims with a higher one gives way to it.
        title: overrides the rule's title for a subtype.
        inflated: whether recording lengthens this cost, as it does many short operators; a wait, a sleep or a single
            long call takes as long without the profiler. By default costs of the host's side are.
        copies_ns: device time per step, ns, of copies that go when a cost of the host's side goes; so much of the gain
            may come out of the copies' share of the step.
    """

    values: dict[str, Quantity] = field(default_factory=dict)
    gain_ns: float = 0.0
    evidence: Sequence[Block] = ()
    confidence: Confidence = "high"
    steps: Sequence[int] = ()
    location: Location | None = None
    side: Side | None = None
    claims: Sequence[int] | None = None
    title: str | None = None
    fix: str | None = None
    inflated: bool | None = None
    copies_ns: float = 0.0


@dataclass(frozen=True)
class Clear:
    """Evaluated; does not hold. `reason` may say by how much."""

    reason: str = ""


@dataclass(frozen=True)
class NotApplicable:
    """The run has no such structure, or the regime makes the rule meaningless."""

    reason: str


@dataclass(frozen=True)
class NeedsCapture:
    """Cannot tell; `record` names exactly what to record."""

    record: str


Outcome = Found | Clear | NotApplicable | NeedsCapture


@dataclass(frozen=True)
class Rule:
    """A registered diagnosis."""

    code: str
    name: str
    side: Side
    title: str
    kind: Kind
    regimes: tuple[str, ...]
    check: Callable[..., Outcome]
    yields_to: tuple[str, ...] = ()

    @property
    def thresholds(self) -> dict[str, Any]:
        """Keyword defaults of the check."""
        parameters = inspect.signature(self.check).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def document(self) -> str:
        """The documentation, dedented."""
        return inspect.getdoc(self.check) or ""

    def section(self, heading: str) -> str:
        """One paragraph of the documentation by its heading, on one line; "" if there is none."""
        found = re.search(rf"^{heading}:\s*(.*?)(?=^\S[\w ]*:|\Z)", self.document, re.MULTILINE | re.DOTALL)
        return " ".join(found[1].split()) if found else ""


def rule(
    code: str,
    name: str,
    *,
    title: str,
    side: Side = "any",
    kind: Kind = "problem",
    regimes: tuple[str, ...] = (),
    yields_to: tuple[str, ...] = (),
) -> Callable[[Callable[..., Outcome]], Rule]:
    """Declare a diagnosis.

    Args:
        code: three letters and a number from 101; never reused.
        name: the slug.
        title: sentence with `{value}` placeholders, filled from `Found.values`.
        side: whose time a finding would give back.
        kind: validity findings never rank; statements carry no gain.
        regimes: regimes (names of `measure.regime.REGIMES`) in which the rule is evaluated at all; empty for any.
        yields_to: codes, or beginnings of codes, whose findings own shared events whatever the gains: the special case
            owns the time, the general rule gives way.
    """
    if not re.fullmatch(r"[A-Z]{3}[1-9]\d{2}", code):
        raise ValueError(f"{code}: a code is three letters and a number from 101")

    def declare(check: Callable[..., Outcome]) -> Rule:
        return Rule(code, name, side, title, kind, regimes, check, yields_to)

    return declare
