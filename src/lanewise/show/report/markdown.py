"""The whole Report as Markdown, and what every Markdown needs: escaped text, places, tables."""

from __future__ import annotations

from lanewise.report.gain import gain_text, saves_text, why_not
from lanewise.report.model import Block, Finding, Report, Stack, TableBlock, TextBlock
from lanewise.report.quantity import format_quantity
from lanewise.show.safe_text import clean

__all__ = ["escape", "finding_markdown", "location_text", "report_markdown", "table_markdown"]

_MARKS = {"bad": "**bad**", "warn": "**warning**", "info": "note", "ok": "ok"}
_SPECIAL = str.maketrans({c: "\\" + c for c in "\\`*_{}[]<>|#"})


def escape(text: str, limit: int = 120) -> str:
    """Untrusted text that Markdown shows as it is."""
    return clean(text, limit).translate(_SPECIAL)


def report_markdown(report: Report) -> str:
    """The report, one section each for trust, regime, findings, steps and top tables."""
    source = report.source
    lines = [f"# {escape(report.verdict, 600)}", ""]
    held = f"a tree of {source.contexts:,} contexts" if source.contexts else f"{source.events:,} events"
    device = escape(source.device) or ("a device without a name" if source.devices else "no device")
    lines += [
        f"`{clean(source.path, 80).replace('`', '?')}`: {held}, {device}, "
        f"{report.steps.count or 'no'} recorded steps; lanewise {report.version}",
        "",
    ]
    if report.statements:
        lines += [*(f"- {escape(str(statement), 500)}" for statement in report.statements), ""]
    lines += ["## Can the measurement be trusted?", ""]
    lines += [f"- {_MARKS[note.level]}: {escape(note.text, 400)}" for note in report.health]
    lines += [f"- **{f.code} {f.name}**: {escape(f.title, 400)}" for f in report.findings if f.kind == "validity"]
    lines += ["", "## Findings, most to gain first", ""]
    shown = [f for f in report.findings if f.kind not in {"validity", "regime"}]
    for finding in shown:
        lines += finding_markdown(finding)
    if not shown:
        lines += ["None.", ""]
    for key in ("cpu",) if "cpu" in report.tables else ("kernels", "operators"):
        if key in report.tables:
            lines += [*table_markdown(report.tables[key], rows=5, columns=8), ""]
    needs = [c for c in report.checks if c.status == "needs_capture"]
    if needs:
        lines += ["## To know more, record", ""]
        lines += [f"- {c.code} {c.name}: {escape(c.reason, 200)}" for c in needs]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def location_text(finding: Finding) -> str:
    """Where a finding points, in one line; "" if the trace does not say."""
    at = finding.location
    if at is None:
        return ""
    parts: list[str] = []
    if at.file:
        parts.append(f"{at.file}:{at.line}" + (f" in {at.function}" if at.function else ""))
    if at.module:
        parts.append(f"module {at.module}")
    if not at.file and at.operators:
        parts.append(" > ".join(at.operators))
    return ", ".join(parts)


def finding_markdown(finding: Finding, *, blocks: int | None = 2, rows: int = 5) -> list[str]:
    """A finding as Markdown lines: the sentence, where it is, evidence, what to do.

    Args:
        blocks: pieces of evidence, the first ones; None: all.
        rows: of each table.
    """
    gain = ""
    if finding.recoverable_us_per_step > 0:
        saves = saves_text(finding)
        gain = f" ({gain_text(finding)}{f'; {saves}' if saves else ''})"
    elif finding.kind in {"problem", "note"}:
        gain = f" ({why_not(finding)})"
    lines = [f"### {finding.code} {finding.name}{gain}", "", escape(finding.title, 400), ""]
    where = location_text(finding)
    if where:
        lines += [f"Where: {escape(where, 200)}", ""]
    for block in finding.evidence[:blocks]:
        lines += [*_block(block, rows), ""]
    if finding.fix:
        lines += [f"Fix: {finding.fix}", ""]
    if finding.verify:
        lines += [f"Verify: {finding.verify}", ""]
    return lines


def _block(block: Block, rows: int) -> list[str]:
    match block:
        case TableBlock():
            return table_markdown(block, rows=rows, columns=7)
        case TextBlock():
            return [escape(str(block), 400)]
        case Stack():
            return [f"{escape(block.title)}: " + " > ".join(escape(frame) for frame in block.frames)]


def table_markdown(
    block: TableBlock, *, rows: int | None = None, columns: int | None = None, longest: int = 70, title: bool = True
) -> list[str]:
    """A table block as Markdown lines.

    Args:
        rows, columns: the first ones only. longest: characters of a cell. title: whether to begin with its title.
    """
    headings = block.columns[:columns]
    body = block.rows[:rows]
    lines = [
        *([f"**{escape(block.title)}**", ""] if title else []),
        "| " + " | ".join(escape(h.label) for h in headings) + " |",
        "|" + "|".join("---" if h.type == "text" else "---:" for h in headings) + "|",
    ]
    for row in body:
        cells = [
            escape(str(row[h.key]), longest) if h.type == "text" else format_quantity(h.type, row[h.key])
            for h in headings
        ]
        lines.append("| " + " | ".join(cells) + " |")
    omitted = block.omitted + len(block.rows) - len(body)
    if omitted:
        lines += ["", f"{omitted:,} more row{'s' * (omitted > 1)}"]
    return lines
