"""A comparison as Markdown: short enough to paste into a pull request, or all of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lanewise.compare.model import Comparison, Difference
from lanewise.report.model import TableBlock
from lanewise.report.quantity import format_quantity
from lanewise.show.diff.diff_tables import (
    contexts_table,
    counts_table,
    device_table,
    environment_table,
    findings_table,
    signed,
    waterfall_table,
)
from lanewise.show.report.markdown import escape, table_markdown

__all__ = ["LINES", "diff_markdown", "whole_diff_markdown"]

LINES = 40
"""At most, blank ones included, for up to four sides; ten more for each further one."""
_LEAST = 10
_ROWS = 8
_SAID = 3
_FINDINGS = 4


def diff_markdown(comparison: Comparison) -> str:
    """The comparison in `LINES` lines: the verdict, what speaks against it, where the time went, what changed most."""
    each = max((LINES - 1) // max(len(comparison.differences), 1), _LEAST)
    lines = [line for difference in comparison.differences for line in _short(difference, each)]
    return "\n".join([*lines, f"lanewise {comparison.version}; `-v` shows all rows and tables"]) + "\n"


def _short(difference: Difference, most: int) -> list[str]:
    head = [f"## {escape(difference.b)} against {escape(difference.a)}", "", escape(difference.verdict, 1500), ""]
    said = [f"- {escape(warning, 300)}" for warning in difference.warnings]
    said += [f"- {s.code}: {escape(s.title, 300)}" for s in difference.statements]
    more = [f"- {len(said) - _SAID} more notes"] if len(said) > _SAID else []
    said = [*said[:_SAID], *more, *_where(difference), *_around(difference)]
    found = _findings(difference)
    if len(head) + len(said) + len(found) + 1 > most:
        return [*(head + said + found)[: most - 1], ""]
    lines = [*head, *said]
    left = most - len(lines) - len(found) - 1
    tables = [partial(_changed_counts, difference)]
    tables += [partial(contexts_table, difference)] if difference.contexts else []
    tables += [partial(device_table, difference)] if difference.device else []
    for place, table in enumerate(tables):
        # What is left is shared by the tables that follow the counts.
        drawn = _fitted(table, left if place in (0, len(tables) - 1) else left // 2)
        lines += drawn
        left -= len(drawn)
    return [*lines, *found, ""]


def _fitted(table: Callable[[int], TableBlock], room: int) -> list[str]:
    """As many rows of a table as there is room for; nothing where there is none for one."""
    for rows in range(_ROWS, 0, -1):
        block = table(rows)
        drawn = ["", *table_markdown(block, title=False)]
        if block.rows and len(drawn) <= room:
            return drawn
    return []


def _where(difference: Difference) -> list[str]:
    """The way from one step time to the other, on one line."""
    parts = [f"{item.label} {signed(item.ns)}" for item in difference.waterfall.items if item.ns]
    return [f"- Where the time went: {escape(', '.join(parts), 400)}"] if len(parts) > 1 else []


def _around(difference: Difference) -> list[str]:
    changed = [f"{e.key}: {e.a} → {e.b}" for e in difference.environment]
    return [f"- Also different: {escape('; '.join(changed), 300)}"] if changed else []


def _findings(difference: Difference) -> list[str]:
    """What is new and what is fixed, a line each; what stayed, by code."""
    changed = [f for f in difference.findings if f.status != "remaining"]
    lines = [f"- {f.status}: {escape(f.b_title or f.a_title, 200)} ({f.code})" for f in changed[:_FINDINGS]]
    rest = [f.code for f in changed[_FINDINGS:]]
    lines += [f"- and {len(rest)} more: {', '.join(rest)}"] if rest else []
    stayed = [f.code for f in difference.findings if f.status == "remaining"]
    lines += [f"- remaining: {', '.join(dict.fromkeys(stayed))}"] if stayed else []
    return ["", "Findings:", "", *lines] if lines else []


def _changed_counts(difference: Difference, rows: int) -> TableBlock:
    block = counts_table(difference)
    differ = [row for row in block.rows if row["delta"] not in ("0", "0 us")]
    return TableBlock(block.title, block.columns, differ[:rows])


def whole_diff_markdown(comparison: Comparison) -> str:
    """The comparison with all its tables, one section per side that is compared with the base."""
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
        blocks.append(device_table(difference))
    if difference.contexts:
        blocks.append(contexts_table(difference, 40))
    if difference.findings:
        blocks.append(findings_table(difference))
    if difference.environment:
        blocks.append(environment_table(difference))
    lines: list[str] = []
    for block in blocks:
        lines += ["", *table_markdown(block, rows=None)]
    return [*lines, ""]


def _coverage(difference: Difference) -> str:
    share = difference.coverage.matched_share + difference.coverage.explained_share
    return f"{format_quantity('share', share)} of the device time of both sides is matched or explained."
