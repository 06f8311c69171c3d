"""A comparison as Markdown, short enough to paste into a pull request."""

from __future__ import annotations

from lanewise.compare.model import Comparison, Difference
from lanewise.report.quantity import format_quantity
from lanewise.show.diff.diff_tables import (
    contexts_table,
    counts_table,
    device_table,
    environment_table,
    findings_table,
    waterfall_table,
)
from lanewise.show.report.markdown import escape, table_markdown

__all__ = ["diff_markdown"]

_ROWS = 8


def diff_markdown(comparison: Comparison) -> str:
    """The comparison, one section per side that is compared with the base."""
    lines: list[str] = []
    for difference in comparison.differences:
        lines += [f"## {escape(difference.b)} against {escape(difference.a)}", "", escape(difference.verdict, 1500), ""]
        lines += [f"- {escape(warning, 400)}" for warning in difference.warnings]
        lines += [f"- {s.code} {escape(s.name)}: {escape(s.title, 400)}" for s in difference.statements]
        lines += _tables(difference)
        if difference.device:
            lines += [_coverage(difference), ""]
    lines.append(f"lanewise {comparison.version}")
    return "\n".join(lines).rstrip() + "\n"


def _tables(difference: Difference) -> list[str]:
    blocks = [waterfall_table(difference), counts_table(difference)]
    if difference.device:
        blocks.append(device_table(difference, _ROWS))
    if difference.contexts:
        blocks.append(contexts_table(difference, _ROWS))
    if difference.findings:
        blocks.append(findings_table(difference))
    if difference.environment:
        blocks.append(environment_table(difference))
    lines: list[str] = []
    for block in blocks:
        lines += ["", *table_markdown(block, rows=24)]
    return [*lines, ""]


def _coverage(difference: Difference) -> str:
    share = difference.coverage.matched_share + difference.coverage.explained_share
    return f"{format_quantity('share', share)} of the device time of both sides is matched or explained."
