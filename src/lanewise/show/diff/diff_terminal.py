"""A comparison in a terminal: the verdict, then where the time went, then what changed, then how sure it is."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lanewise.compare.model import Comparison, Difference, SideSummary
from lanewise.report.model import TableBlock
from lanewise.report.quantity import format_quantity
from lanewise.show.diff.diff_tables import (
    contexts_table,
    counts_table,
    device_table,
    environment_table,
    host_table,
    waterfall_table,
)
from lanewise.show.report.terminal_table import table_renderable
from lanewise.show.safe_text import clean

__all__ = ["print_diff", "render_diff"]

_DEVICE_ROWS = 12
_STATUS = {"new": ("+", "red"), "fixed": ("-", "green"), "remaining": ("·", "dim")}


def print_diff(comparison: Comparison, console: Console, *, verbose: bool = False, brief: bool = False) -> None:
    """Print a comparison. `verbose` shows every row; `brief` only which is faster, and where the time and findings went."""
    console.print(render_diff(comparison, verbose=verbose, brief=brief))


def render_diff(comparison: Comparison, *, verbose: bool = False, brief: bool = False) -> RenderableType:
    """The comparison as a rich renderable; `verbose` and `brief` as for `print_diff`."""
    parts: list[RenderableType] = [_side("base", comparison.base)]
    parts += [
        _side("against it" if len(comparison.others) == 1 else f"{place}", side)
        for place, side in enumerate(comparison.others, 1)
    ]
    for difference in comparison.differences:
        several = len(comparison.differences) > 1
        parts += _outcome(difference, several=several)
        if not brief:
            parts += _work(difference, verbose)
        if difference.findings:
            parts += [Text(), *_findings(difference)]
        if difference.environment:
            parts += [Text(), _table(environment_table(difference))]
    return Group(*parts)


def _side(role: str, side: SideSummary) -> Text:
    facts = [format_quantity("time", side.step_ns) + " per step" + ("" if side.unprofiled else " as recorded")]
    if side.device_ns:
        where = "of device time" if side.on_device else "in operators"
        facts.append(f"{format_quantity('time', side.device_ns)} {where}")
    facts.append(f"{side.runs} runs" if side.runs > 1 else f"{side.steady} steady steps" if side.steps else "no steps")
    return Text.assemble(
        (f"{role}: ", "dim"),
        (clean(side.label, 60), "bold"),
        "  ",
        (f"{clean(side.sources[0], 70)}" + (f" and {side.runs - 1} more" if side.runs > 1 else ""), "dim"),
        "  ",
        " · ".join(facts),
    )


def _outcome(difference: Difference, *, several: bool) -> list[RenderableType]:
    """Which is faster, how sure that is, and where the time went."""
    parts: list[RenderableType] = [Text()]
    if several:
        parts += [Text(f"{clean(difference.b, 60)} against {clean(difference.a, 60)}", style="bold underline")]
    parts += [Text(clean(difference.verdict, 1500), style="bold")]
    for warning in difference.warnings:
        parts.append(Text.assemble(("  ! ", "yellow"), clean(warning, 400)))
    if difference.common is not None and abs(difference.common - 1) > 0.02:
        parts.append(
            Text.assemble(
                ("  ! ", "yellow"),
                f"All kernels together run {difference.common:.3f}x as fast: that is "
                "the card (clocks, power), not the program.",
            )
        )
    parts += [Text(), _table(waterfall_table(difference))]
    return parts


def _work(difference: Difference, verbose: bool) -> list[RenderableType]:
    """What each side does, by kernel, context and operator."""
    parts: list[RenderableType] = [Text(), _table(counts_table(difference))]
    if difference.device:
        parts += _device(difference, None if verbose else _DEVICE_ROWS)
    if difference.contexts:
        parts += [Text(), _table(contexts_table(difference, 40 if verbose else 12))]
    host = host_table(difference, 40 if verbose else 6)
    if host.rows:
        parts += [Text(), _table(host)]
    for statement in difference.statements:
        line = Text.assemble((f"  {statement.code} ", "cyan"), clean(statement.title, 400))
        parts += [Text(), line, Text(f"  Fix: {statement.fix}", style="dim")]
    return parts


def _device(difference: Difference, rows: int | None) -> list[RenderableType]:
    coverage = difference.coverage
    text = f"  {format_quantity('share', coverage.matched_share)} of the time of both sides is matched"
    if coverage.explained_share:
        text += f", {format_quantity('share', coverage.explained_share)} explained without a partner"
    if coverage.new_ns or coverage.gone_ns:
        text += (
            f"; {format_quantity('time', coverage.new_ns)} new and {format_quantity('time', coverage.gone_ns)} gone "
            "without a relation to the other side"
        )
    return [Text(), _table(device_table(difference, rows)), Text(text, style="dim")]


def _findings(difference: Difference) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("  Findings", style="dim italic")]
    for change in difference.findings:
        mark, style = _STATUS[change.status]
        grid = Table.grid(padding=(0, 1))
        title = clean(change.b_title or change.a_title, 300)
        grid.add_row(
            Text(f"  {mark}", style=style), Text(f"{change.status:9}"), Text(change.code, style="cyan"), Text(title)
        )
        lines.append(grid)
    return lines


def _table(block: TableBlock) -> RenderableType:
    return Padding(table_renderable(block), (0, 0, 0, 2))
