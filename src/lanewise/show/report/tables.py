"""Tables of a trace in every format: those of the profiler, and one group for each measure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from lanewise.diagnose.sections.cpu import cpu_section
from lanewise.diagnose.sections.critical_path import critical_path_section
from lanewise.diagnose.sections.memory import memory_section
from lanewise.diagnose.sections.overlap import overlap_section
from lanewise.diagnose.sections.queues import queues_section
from lanewise.diagnose.sections.roofline import roofline_section
from lanewise.diagnose.sections.section import Section, Source
from lanewise.diagnose.summary import API_COLUMNS, COPY_COLUMNS, KERNEL_COLUMNS, OPERATOR_COLUMNS, step_block
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.report.model import TableBlock, TextBlock
from lanewise.show.report.json import to_plain
from lanewise.show.report.markdown import escape, table_markdown

__all__ = [
    "MEASURES",
    "PARTS",
    "PROFILER_TABLES",
    "Tables",
    "cut_tables",
    "measure_section",
    "profiler_tables",
    "tables_csv",
    "tables_json",
    "tables_markdown",
]

SCHEMA = "lanewise.tables/1"

PROFILER_TABLES = ("operators", "kernels", "api", "copies", "steps")
"""The tables that every profiler has."""

_SECTIONS: Mapping[str, Callable[[Facts], Section]] = {
    "roofline": roofline_section,
    "memory": memory_section,
    "overlap": overlap_section,
    "queues": queues_section,
    "cpu": cpu_section,
}
MEASURES = (*_SECTIONS, "critical-path")
"""Measures that are shown as a statement and tables of their own."""

PARTS = {
    "memory-steps": "memory",
    "memory-over-time": "memory",
    "queues-over-time": "queues",
    "critical-path-segments": "critical-path",
}
"""Tables beside the first one of a measure, which can be asked for by name -> that measure."""

# A table that grows with time is shown on request, and in the formats that hold all of it.
_OVER_TIME = "-over-time"


def profiler_tables(
    facts: Facts, wanted: Sequence[str], *, limit: int | None, sort: str | None = None
) -> dict[str, TableBlock]:
    """The wanted tables of the profiler, at most `limit` rows each; with `sort`, only tables that have that column."""
    sources: dict[str, Source] = {}
    if "operators" in wanted:
        sources["operators"] = Source("Operators and annotations", facts.operators, OPERATOR_COLUMNS)
    if "kernels" in wanted:
        sources["kernels"] = Source("Kernels", facts.kernels, KERNEL_COLUMNS)
    if "api" in wanted:
        sources["api"] = Source("API calls", facts.api, API_COLUMNS)
    if "copies" in wanted:
        copies = facts.copies
        per_second = Columns({**{n: copies[n] for n in copies}, "bandwidth": copies["bandwidth"] * 1e9})
        sources["copies"] = Source("Copies and sets", per_second, COPY_COLUMNS)
    blocks = cut_tables(sources, limit=limit, sort=sort)
    if "steps" in wanted and sort is None:
        blocks["steps"] = step_block(facts)
    return blocks


def measure_section(facts: Facts, name: str, *, step: int | None = None) -> Section:
    """What one of `MEASURES` says, or one of `PARTS` alone; `step` is the row of the step that a critical path is of."""
    measure = PARTS.get(name, name)
    section = critical_path_section(facts, step) if measure == "critical-path" else _SECTIONS[measure](facts)
    if name == measure:
        return section
    return Section([], {name: section.tables[name]}) if name in section.tables else Section(section.statements, {})


def cut_tables(sources: Mapping[str, Source], *, limit: int | None, sort: str | None = None) -> dict[str, TableBlock]:
    """Tables of at most `limit` rows each; with `sort`, only those that have that column, largest first."""
    blocks: dict[str, TableBlock] = {}
    for key, (title, data, headings) in sources.items():
        if limit is not None and key.endswith(_OVER_TIME) and len(sources) > 1:
            continue
        if sort is not None:
            if sort not in data:
                continue
            data = data.sorted_by(sort) if data[sort].dtype != object else data.take(np.argsort(data[sort].astype(str)))
        columns = list(headings)
        rows = Columns({column.key: data[column.key] for column in columns}).rows(limit)
        blocks[key] = TableBlock(f"{title} ({data.height:,})", columns, rows, data.height - len(rows))
    return blocks


class Tables(NamedTuple):
    """Tables by name, and what is said about them."""

    source: str
    blocks: Mapping[str, TableBlock]
    statements: Mapping[str, Sequence[TextBlock]]


def tables_json(tables: Tables) -> str:
    """All tables as one object; times in ns. Missing numbers are null."""
    data = {"schema": SCHEMA, "source": tables.source, "tables": to_plain(dict(tables.blocks))}
    if tables.statements:
        data["statements"] = to_plain({key: list(told) for key, told in tables.statements.items()})
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def tables_csv(tables: Tables) -> str:
    """The first table as CSV; times in ns. A text that a spreadsheet would run as a formula gets a leading quote."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for block in list(tables.blocks.values())[:1]:
        writer.writerow([column.key for column in block.columns])
        for row in block.rows:
            writer.writerow([_inert(row[column.key]) for column in block.columns])
    return buffer.getvalue()


def tables_markdown(tables: Tables) -> str:
    """All statements, then all tables as Markdown."""
    told = [escape(str(one), 400) for group in tables.statements.values() for one in group]
    return "\n\n".join([*told, *("\n".join(table_markdown(block)) for block in tables.blocks.values())]) + "\n"


def _inert(value: object) -> object:
    return "'" + value if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"} else value
