"""SQL over the stored tables, through duckdb (an optional dependency), sandboxed to them."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from lanewise.errors import MissingDependencyError, UsageError
from lanewise.show.report.json import to_plain
from lanewise.show.safe_text import clean
from lanewise.trace.model import Trace
from lanewise.trace.schema import TABLES

__all__ = ["run_query", "schema_text"]


def schema_text() -> str:
    """Tables and columns, one a line."""
    lines: list[str] = []
    for table, columns in TABLES.items():
        lines.append(table)
        extra = {"events": "id, depth, parent, step", "lanes": "id"}.get(table)
        if extra:
            lines.append(f"  {extra}")
        for name, column in columns.items():
            unit = f" [{column.unit}]" if column.unit and not column.unit.startswith("row of texts") else ""
            lines.append(f"  {name.removesuffix('_text'):18}{unit} {column.meaning}")
    return "\n".join(lines)


def run_query(trace: Trace, query: str, limit: int, format_: str) -> str:
    """The answer as `text`, `csv` or `json`; raises UsageError with the engine's message for a wrong query."""
    try:
        import duckdb

        importlib.import_module("pyarrow")  # duckdb reads the frames through it
    except ImportError:
        raise MissingDependencyError("lanewise sql needs duckdb and pyarrow: pip install 'lanewise[sql]'") from None
    connection = duckdb.connect(":memory:")
    lowered = query.lower()
    for table in TABLES:
        if table in lowered:
            connection.register(table, trace.frame(table).to_arrow())
    # The query is the user's own, but it may have been pasted: it reads these tables and nothing else.
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    try:
        result = connection.execute(query)
        names = [column[0] for column in result.description or []]
        rows: list[tuple[Any, ...]] = result.fetchmany(limit + 1)
    except duckdb.Error as error:
        said = " ".join(str(error).split())[:400]
        if "Table with name" in said:  # what it suggests are tables of its own
            said = f"{said.partition('!')[0]}; the tables are {', '.join(TABLES)}"
        raise UsageError(f"the query failed: {said}") from None
    more = len(rows) > limit
    rows = rows[:limit]
    if format_ == "json":
        data = {"columns": names, "rows": to_plain([list(row) for row in rows]), "more": more}
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    if format_ == "csv":
        import csv
        import io

        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([names, *rows])
        return buffer.getvalue()
    return _aligned(names, rows) + ("\n(more rows; raise --limit)" if more else "")


def _aligned(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    cells = [names, *[[_text(value) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(names))]
    return "\n".join(
        "  ".join(v.rjust(w) if n else v.ljust(w) for v, w, n in zip(row, widths, numeric, strict=True)).rstrip()
        for row in cells
    )


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else clean(str(value), 80)
