"""What a diagnosis is: a documented pure function from facts to an outcome.

    @rule("LAU101", "many-tiny-kernels", title="{launches} launches per step ...")
    def many_tiny_kernels(facts: Facts, *, launches_from: int = 20) -> Outcome:
        '''One sentence: what it is.

        What it means, in a paragraph.

        Costs: which time a fix gives back.

        Fix: what to write, in code.

        Verify: what is different afterwards.

        Silent: where it says nothing though one might expect it.

        Source: where this is known from.
        '''

The docstring is the documentation page; its `Fix:` and `Verify:` paragraphs are what a finding shows. Keyword defaults
are the thresholds that settings may override.

A calling-context tree can answer some of the same questions from its sums. Then the rule has a second check, `of_tree`,
which takes `Contexts` and the same thresholds: code, title, fix and verify are those of the one rule.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from lanewise.replay.change import Change
from lanewise.report.model import Block, Confidence, Location
from lanewise.report.quantity import Quantity

__all__ = ["Clear", "Found", "NeedsCapture", "NotApplicable", "Outcome", "Rule", "Saving", "rule"]

Kind = Literal["validity", "regime", "problem", "statement"]


class Saving(NamedTuple):
    """What a fix could save in a tree at most: host and device time of each of its contexts, ns per step."""

    host: np.ndarray
    device: np.ndarray


@dataclass(frozen=True)
class Found:
    """The rule holds.

    Attributes:
        values: numbers for the title template.
        change: what the step would be without the problem; None for a statement. The engine replays the step with it: what
            it gives, and in which order, follows.
        saves: the same of a tree, which has no graph to replay: what goes away at most.
        spread: relative uncertainty of what the change does, beyond that of the recording: 0.15 where work simply goes,
            more where new work is estimated.
        bound: whether the change gives at most this, as how much of it a fix can reach cannot be told.
        evidence: blocks that show it.
        confidence: see `Finding.confidence`.
        steps: rows of the step table it was seen in; empty for all steady ones.
        location: where in the program.
        events: ids of the events that it is about, for whoever looks for them in the trace.
        title: overrides the rule's title for a subtype.
    """

    values: dict[str, Quantity] = field(default_factory=dict)
    change: Change | None = None
    saves: Saving | None = None
    spread: float = 0.15
    bound: bool = False
    evidence: Sequence[Block] = ()
    confidence: Confidence = "high"
    steps: Sequence[int] = ()
    location: Location | None = None
    events: Sequence[int] | np.ndarray = ()
    title: str | None = None
    fix: str | None = None


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
    title: str
    kind: Kind
    regimes: tuple[str, ...]
    check: Callable[..., Outcome]
    general: bool = False
    of_tree: Callable[..., Outcome] | None = None

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
    kind: Kind = "problem",
    regimes: tuple[str, ...] = (),
    general: bool = False,
    of_tree: Callable[..., Outcome] | None = None,
) -> Callable[[Callable[..., Outcome]], Rule]:
    """Declare a diagnosis.

    Args:
        code: three letters and a number from 101; never reused.
        name: the slug.
        title: sentence with `{value}` placeholders, filled from `Found.values`.
        kind: validity findings never rank; statements carry no gain.
        regimes: regimes (names of `measure.regime.REGIMES`) in which the rule is evaluated at all; empty for any.
        general: a remedy for anything, such as a CUDA graph: it counts on what those findings leave that name a cause.
        of_tree: the same question to a calling-context tree (`Contexts`), with those of the thresholds that it names.
    """
    if not re.fullmatch(r"[A-Z]{3}[1-9]\d{2}", code):
        raise ValueError(f"{code}: a code is three letters and a number from 101")

    def declare(check: Callable[..., Outcome]) -> Rule:
        return Rule(code, name, title, kind, regimes, check, general, of_tree)

    return declare
