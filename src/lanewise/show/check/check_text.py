"""The results of a check as text, Markdown and JSON."""

from __future__ import annotations

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lanewise.compare.check import BudgetResult, CheckReport
from lanewise.show.report.json import to_plain
from lanewise.show.report.markdown import escape
from lanewise.show.safe_text import clean

__all__ = ["check_json", "check_markdown", "render_check", "summary_line"]

_MARKS = {"over": ("✗", "bold red"), "within": ("✓", "green"), "undecided": ("?", "yellow"), "skipped": ("·", "dim")}
_ORDER = {"over": 0, "undecided": 1, "within": 2, "skipped": 3}


def check_json(report: CheckReport) -> str:
    """The report, indented; NaN and infinities become null."""
    return msgspec.json.format(msgspec.json.encode(to_plain(report)), indent=2).decode()


def summary_line(report: CheckReport) -> str:
    """What came of it, in one sentence."""
    over = [r for r in report.results if r.status == "over"]
    errors = [r for r in over if r.level == "error"]
    runs = f"{report.runs} run{'s' if report.runs > 1 else ''}"
    if errors:
        keys = ", ".join(dict.fromkeys(r.code or r.key for r in errors))
        return f"Over budget in {runs}: {keys}."
    text = f"Within budget in {runs}"
    if over:
        text += f"; warnings: {', '.join(dict.fromkeys(r.code or r.key for r in over))}"
    if report.undecided:
        text += f"; {report.undecided} undecided, more runs would tell"
    return text + "."


def render_check(report: CheckReport) -> RenderableType:
    """The results as a rich renderable, what is over first."""
    parts: list[RenderableType] = [Text(summary_line(report), style="bold")]
    for result in _sorted(report):
        mark, style = _MARKS[result.status]
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(f"  {mark}", style=style), Text(clean(_sentence(result), 700)))
        parts.append(grid)
    if report.difference is not None:
        parts += [Text(), Text(f"Against the baseline: {clean(report.difference.verdict, 1500)}")]
    return Group(*parts)


def check_markdown(report: CheckReport) -> str:
    """The results as a Markdown section."""
    words = {"over": "**over**", "within": "within", "undecided": "undecided", "skipped": "skipped"}
    lines = [f"## lanewise: {escape(summary_line(report), 600)}", "", "| budget | result | |", "|---|---|---|"]
    for result in _sorted(report):
        level = "" if result.level == "error" else " (warning)"
        lines.append(
            f"| {escape(result.code or result.key)}{level} | {words[result.status]} | {escape(result.sentence, 700)} |"
        )
    if report.difference is not None:
        lines += ["", f"Against the baseline: {escape(report.difference.verdict, 1500)}"]
    return "\n".join(lines) + "\n"


def _sorted(report: CheckReport) -> list[BudgetResult]:
    return sorted(report.results, key=lambda r: (_ORDER[r.status], r.level != "error"))


def _sentence(result: BudgetResult) -> str:
    return result.sentence if result.level == "error" or result.status != "over" else f"{result.sentence} (warning)"
