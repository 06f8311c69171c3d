"""The Report as Markdown that is short enough to paste into an issue or an assistant; `report_markdown` has all of it."""

from __future__ import annotations

from lanewise.report.gain import cost_text, gain_text, saves_text
from lanewise.report.model import Finding, Report
from lanewise.show.report.markdown import escape, location_text
from lanewise.show.report.picks import (
    NOTHING_SPEAKS_AGAINST,
    bound_by,
    busiest,
    command,
    doubts,
    first_change,
    step_sentence,
    to_do,
    vouched_for,
)
from lanewise.show.report.terminal import TRY_ON_THE_CPU, head_facts, way_on
from lanewise.show.safe_text import clean, shorten

__all__ = ["LINES", "short_markdown"]

LINES = 40
"""At most, blank ones included."""
_FINDINGS = 5
_DOUBTS = 3


def short_markdown(report: Report, *, commands: bool = True) -> str:
    """What it is bound by, what speaks against the numbers, what to do first, and the next `commands`."""
    lines = [f"# {escape(bound_by(report), 600)}", ""]
    lines += [f"`{clean(report.source.path, 80).replace('`', '?')}`: {escape(' · '.join(head_facts(report)), 300)}", ""]
    lines += [f"- Step: {step}" for step in [step_sentence(report)] if step]
    lines += [f"- Cost: {cost}" for cost in [cost_text(report.cost)] if cost]
    lines += [*_trust(report), "", "## What to do", ""]
    on = to_do(report)
    for number, finding in enumerate(on[:_FINDINGS], 1):
        lines += _finding(number, finding)
    if not on:
        lines += _without_findings(report)
    if commands:
        lines += ["", *_next(report, len(on) - _FINDINGS)]
    return "\n".join(lines) + "\n"


def _trust(report: Report) -> list[str]:
    said = doubts(report)
    if not said:
        return [f"- Trust: {NOTHING_SPEAKS_AGAINST}"] if vouched_for(report) else []
    lines = [f"- Doubt: {escape(text, 300)}" for text in said[:_DOUBTS]]
    left = len(said) - _DOUBTS
    return [*lines, f"- {left} more with `--full`"] if left > 0 else lines


def _finding(number: int, finding: Finding) -> list[str]:
    """What, how much and where, the change: a line each."""
    where = location_text(finding)
    at = f", at {escape(where, 120)}" if where else ""
    saves = f"; {saves_text(finding)}" if saves_text(finding) else ""
    lines = [f"{number}. **{escape(finding.title, 300)}** ({finding.code})", f"   - {gain_text(finding)}{at}{saves}"]
    if change := first_change(finding):
        lines.append(f"   - Fix: {shorten(change, 300)}")
    return lines


def _without_findings(report: Report) -> list[str]:
    found = busiest(report)
    if found is None:
        return [way_on(report)]
    title, rows = found
    return [
        f"{escape(title)}:",
        "",
        *(f"- {' · '.join(numbers)}: {escape(name)}" for numbers, name in rows),
        "",
        TRY_ON_THE_CPU,
    ]


def _next(report: Report, more: int) -> list[str]:
    count = f"{more} more finding{'s' * (more > 1)}, evidence" if more > 0 else "Evidence"
    explain = command("explain", report)
    if not explain:
        return [f"{count} and tables: `--full`"]
    last = "the contexts themselves" if report.source.contexts else "the timeline on a page"
    return [
        f"{count} and tables, as text or as Markdown, and {last}:",
        "",
        "```sh",
        f"{explain} --full",
        f"{explain} --format md --full",
        command("tree" if report.source.contexts else "view", report),
        "```",
    ]
