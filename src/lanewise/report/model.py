"""Structs of the Report. The JSON form of these structs is the public schema `lanewise.report/2`.

Names in here that come from a trace are untrusted text: every output escapes them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lanewise.report.quantity import Quantity, QuantityType
from lanewise.shown import Shown

__all__ = [
    "SCHEMA",
    "Block",
    "Check",
    "Cost",
    "Finding",
    "Location",
    "Note",
    "Place",
    "RegimeSummary",
    "Report",
    "SourceSummary",
    "Stack",
    "StepsSummary",
    "TableBlock",
    "TableColumn",
    "TextBlock",
]

SCHEMA = "lanewise.report/2"

_LONGEST = 300
"""Characters of a text in a `repr`: a notebook or a debugger shows it in full."""

Level = Literal["ok", "info", "warn", "bad"]
Side = Literal["host", "device", "transfer", "communication", "memory", "any"]
Confidence = Literal["high", "medium", "low"]
Status = Literal["finding", "clear", "not_applicable", "needs_capture", "error"]


class TableColumn(msgspec.Struct, frozen=True):
    """Heading of a column: key into the rows, type of the values, label."""

    key: str
    type: QuantityType
    label: str


class TableBlock(msgspec.Struct, frozen=True, tag="table"):
    """A table as evidence. Every column key exists in every row (a test checks it); `omitted` rows are not shown."""

    title: str
    columns: list[TableColumn]
    rows: list[dict[str, Any]]
    omitted: int = 0

    def __repr__(self) -> str:
        return f"<TableBlock {self.title!r}: {len(self.rows) + self.omitted} rows, {len(self.columns)} columns>"


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """A sentence as evidence; `{name}` is filled from `values`."""

    template: str
    values: dict[str, Quantity] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format_map({name: str(value) for name, value in self.values.items()})


class Stack(msgspec.Struct, frozen=True, tag="stack"):
    """A chain of names, outermost first: Python frames, modules, operators."""

    title: str
    frames: list[str]


Block = TableBlock | TextBlock | Stack


class Location(msgspec.Struct, frozen=True):
    """Where in the program: what the trace knows, "" or 0 for the rest. `file` is text, never opened."""

    file: str = ""
    line: int = 0
    function: str = ""
    module: str = ""
    annotation: str = ""
    operators: list[str] = msgspec.field(default_factory=list)


class Place(msgspec.Struct, frozen=True):
    """Where in the trace: a stretch of time in one step (-1 outside of steps), its longest event (-1 if none), and how
    many events it holds (0 if the finding speaks of the whole step). Times are ns from the start of the trace."""

    step: int
    start_ns: int
    end_ns: int
    event: int
    events: int


class Finding(msgspec.Struct, frozen=True):
    """One diagnosis that holds.

    Attributes:
        code, name: stable identity of the rule.
        title: one sentence: what, how much, where.
        values: the numbers in the title, by name.
        recoverable_us_per_step: what the step would be shorter by, us, once the findings before it are mended; the values
            of all findings add up. 0 for statements.
        low_us_per_step, high_us_per_step: its 80 % interval.
        alone_us_per_step: what it would give by itself.
        leaves_us_per_step: the step after it and those before it are mended.
        bound: whether it gives at most this: how much a fix can reach cannot be told from the trace.
        confidence: high for direct rows, medium for names or grids in place of shapes, low for sequence only.
        steps: numbers of the recorded steps it was seen in.
        places: where in the trace it is, steady steps first.
        per_step: whether its numbers are per step though none has a number: those of a tree that was watched.
        joules_per_step: what it would save at most, J: what the device draws on average for as long; 0 if not known.
        dollars_per_million_steps: what it would save at the price of the time; 0 without one.
    """

    code: str
    name: str
    title: str
    values: dict[str, Quantity]
    recoverable_us_per_step: float
    confidence: Confidence
    steps: list[int]
    evidence: list[Block]
    fix: str
    verify: str
    location: Location | None = None
    low_us_per_step: float = 0.0
    high_us_per_step: float = 0.0
    alone_us_per_step: float = 0.0
    leaves_us_per_step: float = 0.0
    bound: bool = False
    kind: Literal["validity", "regime", "problem", "statement", "note"] = "problem"
    places: list[Place] = msgspec.field(default_factory=list[Place])
    per_step: bool = False
    joules_per_step: float = 0.0
    dollars_per_million_steps: float = 0.0

    def __repr__(self) -> str:
        return f"<Finding {self.code} {self.name}: {self.title[:_LONGEST]!r}>"


class Check(msgspec.Struct, frozen=True):
    """A rule that was evaluated and is no finding: why, and what to record if it could not tell."""

    code: str
    name: str
    status: Status
    reason: str


class Note(msgspec.Struct, frozen=True):
    """One line of health: how bad, about what, and the sentence."""

    level: Level
    topic: str
    text: str


class SourceSummary(msgspec.Struct, frozen=True):
    """What was read. `contexts`: how many a calling-context tree holds; 0 for a trace, and `events` is 0 for a tree."""

    path: str
    bytes: int
    digest: str
    events: int
    generation: str
    device: str
    devices: int
    software: dict[str, str]
    recorded: dict[str, bool]
    contexts: int = 0


class RegimeSummary(msgspec.Struct, frozen=True):
    """What the run is bound by.

    `step_us` is the step without the profiler, with its 80 % interval: measured if `unprofiled`, otherwise computed.
    `recorded_step_us` is the median as recorded.
    """

    code: str
    name: str
    sentence: str
    shares: dict[str, float]
    busy_share: float
    step_us: float
    step_low_us: float
    step_high_us: float
    recorded_step_us: float
    unprofiled: bool
    per_step: list[str]
    as_recorded: str


class StepsSummary(msgspec.Struct, frozen=True):
    """Steps: where they come from, which are steady, and one table."""

    source: str
    count: int
    steady: list[int]
    table: TableBlock
    gaps: TableBlock | None = None


class Cost(msgspec.Struct, frozen=True):
    """What a step costs; 0 for what is not known.

    Attributes:
        joules_per_step: what one device draws in a step, by its own counter, J. watts: on average.
        dollars_per_hour: the price of an hour of what runs the steps, as it was given.
        dollars_per_million_steps: what follows from it and the step without the profiler.
    """

    joules_per_step: float = 0.0
    watts: float = 0.0
    dollars_per_hour: float = 0.0
    dollars_per_million_steps: float = 0.0


class Report(Shown, msgspec.Struct, frozen=True):
    """Everything that `explain` says, as data. `statements`: what was measured besides, where it says something."""

    schema: str
    version: str
    source: SourceSummary
    health: list[Note]
    steps: StepsSummary
    regime: RegimeSummary
    findings: list[Finding]
    checks: list[Check]
    tables: dict[str, TableBlock]
    chain: TableBlock | None = None
    verdict: str = ""
    statements: list[TextBlock] = msgspec.field(default_factory=list[TextBlock])
    cost: Cost | None = None

    def __repr__(self) -> str:
        about = f"{self.source.path[-_LONGEST:]!r}: {self.verdict[:_LONGEST]!r}, {len(self.findings)} findings"
        return f"<Report {about}>"
