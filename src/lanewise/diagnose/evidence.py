"""Building blocks that rules share: evidence tables, per-step averages, source locations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.core import remembered
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.report.evidence_columns import LINE, Headings
from lanewise.report.model import Location, TableBlock, TextBlock
from lanewise.trace.frames import is_user_frame, parse_frame
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = [
    "by_line",
    "host_window",
    "kernel_label",
    "line_hint",
    "locate",
    "operator_chain",
    "per_step",
    "shapes_label",
    "table",
    "table_of",
]


def table(title: str, columns: Headings, rows: Sequence[Mapping[str, object]], *, limit: int = 8) -> TableBlock:
    """A table block from rows, of what `columns` names."""
    shown = [{column.key: row[column.key] for column in columns} for row in rows[:limit]]
    return TableBlock(title, list(columns), shown, max(0, len(rows) - limit))


def table_of(title: str, data: Columns, columns: Headings, *, limit: int = 8) -> TableBlock:
    """A table block from measured columns."""
    rows = Columns({column.key: data[column.key] for column in columns}).rows(limit)
    return TableBlock(title, list(columns), rows, max(0, data.height - limit))


def per_step(facts: Facts, events: np.ndarray, value: np.ndarray | None = None) -> float:
    """Sum of `value` (indexed by event; 1 each by default) over the events of steady steps, per steady step."""
    chosen = facts.steady_events(events)
    total = len(chosen) if value is None else value[chosen].sum()
    return float(total) / facts.steady_count


@remembered
def host_window(facts: Facts) -> float:
    """Mean length of a steady step on the host, Python and waits included; ns as recorded, 0 without steps."""
    steady = facts.steps.steady
    return float(facts.steps.table["host_duration"][steady].mean()) if steady.any() else 0.0


def kernel_label(facts: Facts, event: int) -> str:
    """Short name of a device op."""
    return short_name(facts.trace.name_of(event))


def shapes_label(facts: Facts, operator: int) -> str:
    """The shapes that an operator was called with, as text; "" if unknown."""
    signature = facts.signatures.of(operator)
    shapes = [list(tensor.shape) for tensor in signature.tensors[:4]] if signature else []
    return " x ".join(json.dumps(shape, separators=(",", ":")) for shape in shapes)


def operator_chain(facts: Facts, event: int, limit: int = 8) -> list[str]:
    """Names of the operators and annotations around a host event, outermost first, itself included."""
    trace, parent = facts.trace, facts.host.parent
    chain: list[str] = []
    at = int(event)
    while at >= 0:
        if trace.kind[at] in (Kind.OPERATOR, Kind.ANNOTATION) and not trace.name_of(at).startswith("ProfilerStep#"):
            chain.append(trace.name_of(at))
        at = int(parent[at])
    return chain[::-1][-limit:]


def by_line(facts: Facts, title: str, shown: Headings, *, by: str) -> list[TableBlock]:
    """What each source line caused, the largest `by` first; nothing where the trace has no stacks.

    Args:
        facts: the measures.
        title: heading of the table.
        shown: columns of `measure_lines` to show besides the line.
        by: the column that decides the order; lines without any of it are left out.
    """
    lines = facts.lines
    lines = lines.take(lines[by] > 0)
    if lines.height == 0:
        return []
    return [table_of(title, lines.sorted_by(by), [LINE, *shown], limit=5)]


def line_hint(facts: Facts) -> list[TextBlock]:
    """What to record to see the source line, where the trace has no stacks."""
    if facts.health.stacks:
        return []
    return [TextBlock("Record with stacks (`with_stack=True`) to see the line of the program.")]


def locate(facts: Facts, event: int) -> Location | None:
    """Where in the program a host event was called from: the innermost frame that is not a library's."""
    trace = facts.trace
    if event < 0:
        return None
    operators = operator_chain(facts, event)
    file, line, function, module = "", 0, "", ""
    at = int(nearest(trace.nesting.parent, trace.kind == Kind.PYTHON, np.array([event]), include_self=True)[0])
    while at >= 0:
        name = trace.name_of(at)
        if name.startswith("nn.Module: ") and not module:
            module = name.removeprefix("nn.Module: ")
        elif not file and is_user_frame(name):
            file, line, function = parse_frame(name)
        at = int(nearest(trace.nesting.parent, trace.kind == Kind.PYTHON, np.array([at]))[0])
    annotation = next((name for name in operators if "::" not in name), "")
    if not (file or module or annotation or operators):
        return None
    return Location(file, line, function, module, annotation, operators)
