"""A table in a terminal of any width: numbers stay whole, names give way, and what is left out is marked."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import format_quantity
from lanewise.show.safe_text import cell, clean, shorten

__all__ = ["AtWidth", "table_renderable"]

_BETWEEN = 3
"""Between two columns, characters."""
_LEAST_NAME, _LEAST_TEXT = 16, 10
"""Where the first column, which names things, and further texts stop giving way: then columns are left out."""
_LEAD = re.compile(r"^\s*(?:→ )?")


class AtWidth:
    """Drawn when it is printed, for the characters that a line has there."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw(options.max_width)


def table_renderable(block: TableBlock, *, max_rows: int | None = None) -> RenderableType:
    """A table block for the terminal: text is escaped, numbers are right-aligned.

    Where it is too wide, texts lose the middle of their words; then columns are left out, texts first and from the right,
    with a column of `…` in their place and their names below.
    """
    rows = block.rows[:max_rows]
    texts = {
        c.key: [cell(row[c.key]) if c.type == "text" else format_quantity(c.type, row[c.key]) for row in rows]
        for c in block.columns
    }
    return AtWidth(lambda width: _drawn(block, texts, len(rows), width))


def _drawn(block: TableBlock, texts: dict[str, list[str]], rows: int, width: int) -> RenderableType:
    widths = _fit(block.columns, texts, width)
    kept = [column for column in block.columns if column.key in widths]
    dropped = [column.label for column in block.columns if column.key not in widths]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column in kept:
        justify = "left" if column.type == "text" else "right"
        table.add_column(clean(column.label), justify=justify, overflow="fold", width=widths[column.key])
    if dropped:
        table.add_column("…", width=1)
    shown = [
        [_shortened(text, widths[c.key], c is kept[0]) if c.type == "text" else text for text in texts[c.key]]
        for c in kept
    ] + [["…"] * rows] * bool(dropped)
    for row in zip(*shown, strict=True):
        table.add_row(*map(Text, row))
    notes: list[str] = []
    omitted = block.omitted + len(block.rows) - rows
    if omitted:
        notes.append(f"{omitted:,} more row{'s' * (omitted > 1)}")
    if dropped:
        notes.append("columns that did not fit: " + ", ".join(dropped))
    return Group(Text(clean(block.title), style="italic"), table, *[Text(note, style="dim") for note in notes])


def _fit(columns: list[TableColumn], texts: dict[str, list[str]], width: int) -> dict[str, int]:
    """Characters of each column that fits; at least one does."""
    first, kept = columns[0], list(columns)
    full = {
        c.key: max([cell_len(text) for text in texts[c.key]] + [cell_len(word) for word in c.label.split()], default=1)
        for c in columns
    }
    least = {
        c.key: min(full[c.key], _LEAST_NAME if c is first else _LEAST_TEXT) if c.type == "text" else full[c.key]
        for c in columns
    }
    room = width
    while True:
        if sum(least[c.key] + _BETWEEN for c in kept) - _BETWEEN <= room:
            return _shared(kept, full, least, room - _BETWEEN * (len(kept) - 1))
        if len(kept) == 1:
            return {first.key: max(1, room)}
        room = width - _BETWEEN - 1  # for the mark
        kept.remove(next((c for c in reversed(kept[1:]) if c.type == "text"), kept[-1]))


def _shared(kept: list[TableColumn], full: dict[str, int], least: dict[str, int], room: int) -> dict[str, int]:
    """The room for all columns, of which the first may be twice as wide as other texts before it gives way."""
    cap = max(full.values())
    while True:
        widths = {
            c.key: max(least[c.key], min(full[c.key], cap * 2 if c is kept[0] else cap))
            if c.type == "text"
            else full[c.key]
            for c in kept
        }
        over = sum(widths.values()) - room
        if over <= 0 or cap == 0:
            break
        cap -= 1
    # What is left over goes to the name, and then to headings, which are on one line where they can be.
    for column in kept:
        wanted = full[column.key] if column is kept[0] else max(widths[column.key], cell_len(column.label))
        more = min(wanted - widths[column.key], room - sum(widths.values()))
        widths[column.key] += max(0, more)
    return widths


def _shortened(text: str, longest: int, is_name: bool) -> str:
    """The text with the middle of words left out that are too long for a line: both ends of a name tell most.

    A name takes two lines at most.
    """
    lead = _LEAD.match(text)
    room = max(_LEAST_TEXT, longest - (lead.end() if lead else 0))
    text = re.sub(rf"\S{{{room + 1},}}", lambda word: shorten(word[0], room), text)
    return shorten(text, 2 * longest) if is_name else text
