"""The profiler's tables in every format."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lanewise.diagnose.summary import (
    API_COLUMNS,
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    OPERATOR_COLUMNS,
    Headings,
    step_block,
)
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.report.model import TableBlock, TableColumn
from lanewise.show.json import to_plain
from lanewise.show.markdown import table_markdown

__all__ = ["profiler_tables", "tables_csv", "tables_json", "tables_markdown"]

SCHEMA = "lanewise.tables/1"


def profiler_tables(
    facts: Facts, wanted: Sequence[str], *, limit: int | None, sort: str | None = None
) -> dict[str, TableBlock]:
    """The wanted tables, at most `limit` rows each; with `sort`, only tables that have that column."""
    sources: dict[str, tuple[str, Columns, Headings]] = {}
    if "operators" in wanted:
        sources["operators"] = ("Operators and annotations", facts.operators, OPERATOR_COLUMNS)
    if "kernels" in wanted:
        sources["kernels"] = ("Kernels", facts.kernels, KERNEL_COLUMNS)
    if "api" in wanted:
        sources["api"] = ("API calls", facts.api, API_COLUMNS)
    if "copies" in wanted:
        copies = facts.copies
        sources["copies"] = (
            "Copies and sets",
            Columns({**{n: copies[n] for n in copies}, "bandwidth": copies["bandwidth"] * 1e9}),
            COPY_COLUMNS,
        )
    blocks: dict[str, TableBlock] = {}
    for key, (title, data, headings) in sources.items():
        if sort is not None:
            if sort not in data:
                continue
            data = data.sorted_by(sort) if data[sort].dtype != object else data.take(np.argsort(data[sort].astype(str)))
        columns = [TableColumn(name, type_, label) for name, (type_, label) in headings.items()]
        rows = Columns({name: data[name] for name in headings}).rows(limit)
        blocks[key] = TableBlock(f"{title} ({data.height:,})", columns, rows, data.height - len(rows))
    if "steps" in wanted and sort is None:
        blocks["steps"] = step_block(facts)
    return blocks


def tables_json(blocks: Mapping[str, TableBlock], source: str) -> str:
    """All tables as one object; times in ns."""
    data = {"schema": SCHEMA, "source": source, "tables": to_plain(dict(blocks))}
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def tables_csv(blocks: Mapping[str, TableBlock]) -> str:
    """One table as CSV; times in ns. A text that a spreadsheet would run as a formula gets a leading quote."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for block in blocks.values():
        writer.writerow([column.key for column in block.columns])
        for row in block.rows:
            writer.writerow([_inert(row[column.key]) for column in block.columns])
    return buffer.getvalue()


def tables_markdown(blocks: Mapping[str, TableBlock]) -> str:
    """All tables as Markdown."""
    return "\n\n".join("\n".join(table_markdown(block)) for block in blocks.values()) + "\n"


def _inert(value: object) -> object:
    return "'" + value if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"} else value
