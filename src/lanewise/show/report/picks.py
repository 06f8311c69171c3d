"""What of a Report comes first, and in which order: the same on the first screen and in the short Markdown."""

from __future__ import annotations

import re
import shlex
from collections import Counter

from lanewise.measure.kernel_names import short_name
from lanewise.measure.regime.python_functions import OWN_CODE, in_function
from lanewise.report.gain import helps, step_text
from lanewise.report.model import Finding, Report
from lanewise.report.quantity import format_quantity
from lanewise.show.safe_text import cell, clean

__all__ = [
    "KERNELS",
    "NOTHING_SPEAKS_AGAINST",
    "bound_by",
    "busiest",
    "command",
    "doubts",
    "first_change",
    "longest_kernels",
    "step_sentence",
    "to_do",
    "vouched_for",
]

NOTHING_SPEAKS_AGAINST = "nothing casts doubt on these numbers"
_FUNCTIONS = 6
_KERNELS = 5
KERNELS = "Kernels that take most: share of the GPU's time, how many, mean time"
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")
_TO_START_WITH = re.compile(r" Start with [A-Z]{3}\d{3} \(.*$")


def bound_by(report: Report) -> str:
    """The verdict without what to start with, which follows by itself."""
    regime = next((finding.title for finding in report.findings if finding.kind == "regime"), "")
    # Without device work the verdict says where the time went, or why there is none; the regime does not.
    known = bool(report.regime.shares) and "cpu" not in report.tables
    return clean(regime if known and regime else _TO_START_WITH.sub("", report.verdict), 700)


def step_sentence(report: Report, *, brief: bool = False) -> str:
    """What a step takes; "" where that says nothing. `brief`: the step as recorded only where the real one is not known."""
    if not report.regime.step_us or not (report.regime.shares or report.regime.unprofiled):
        return ""
    watched = bool(report.source.contexts)
    return step_text(report.regime, marked=bool(report.steps.count), watched=watched, brief=brief)


def doubts(report: Report) -> list[str]:
    """What speaks against the numbers, the gravest first."""
    bad, warn = ([note.text for note in report.health if note.level == level] for level in ("bad", "warn"))
    found = [f"{finding.title} ({finding.code})" for finding in report.findings if finding.kind == "validity"]
    return [clean(text, 600) for text in (*bad, *found, *warn)]


def vouched_for(report: Report) -> bool:
    """Whether it is worth saying that nothing speaks against the numbers: there are some."""
    return report.regime.name != "undetermined"


def to_do(report: Report) -> list[Finding]:
    """Findings that shorten the step, most to gain first."""
    return [finding for finding in report.findings if helps(finding)]


def first_change(finding: Finding) -> str:
    """The first thing to try, in one sentence; "" if there is none."""
    return _SENTENCE.split(clean(finding.fix, 600), maxsplit=1)[0]


def busiest(report: Report) -> tuple[str, list[tuple[list[str], str]]] | None:
    """Where there is no device: the title, and numbers and name of the functions or operators that take most."""
    block = report.tables.get("functions") or report.tables.get("cpu")
    if block is None:
        return None
    keys = {column.key: column.type for column in block.columns}
    shown = block.rows[:_FUNCTIONS]
    if "function" in keys:
        names = [in_function(str(row["function"]), str(row.get("inside", OWN_CODE))) for row in shown]
    else:
        # Calls of one operator with other arguments are rows of their own.
        count = Counter(row["operator"] for row in shown)
        names = [
            f"{row['operator']} {row['shapes']}"
            if count[row["operator"]] > 1 and row.get("shapes")
            else row["operator"]
            for row in shown
        ]
    numbers = [[format_quantity(keys[key], row[key]) for key in ("time", "share") if key in keys] for row in shown]
    return clean(block.title), list(zip(numbers, map(cell, names), strict=True))


def longest_kernels(report: Report) -> list[tuple[list[str], str]]:
    """Numbers and name of the kernels that take most, where the device sets the pace; numbers as in the heading below."""
    block = report.tables.get("kernels")
    known = {column.key for column in block.columns} if block is not None else set[str]()
    if block is None or report.regime.name != "device-bound" or not known >= {"name", "share", "count", "mean"}:
        return []
    return [
        (
            [format_quantity("share", row["share"]), f"{row['count']:,}", format_quantity("time", row["mean"])],
            cell(short_name(str(row["name"]), 80)),
        )
        for row in block.rows[:_KERNELS]
    ]


def command(verb: str, report: Report) -> str:
    """A command about the same trace, in full and quoted: one that is cut short does not run. "" where no file was read."""
    path, of_memory = report.source.path, bool(report.source.contexts) and not report.source.bytes
    return "" if path == "standard input" or of_memory else f"lanewise {verb} {shlex.quote(clean(path, 4096))}"
