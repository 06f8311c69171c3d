"""Arguments of slices as a dictionary: distinct argument rows once, and one small number per slice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.schema import TABLES

__all__ = ["ARGUMENT_TABLES", "Arguments", "arguments"]

# Tables and columns that a hover card shows. Identifiers that differ on every row would say nothing and cost much.
ARGUMENT_TABLES: dict[str, tuple[str, ...]] = {
    "kernel_args": (
        "grid_x",
        "grid_y",
        "grid_z",
        "block_x",
        "block_y",
        "block_z",
        "registers",
        "shared_memory",
        "blocks_per_sm",
        "occupancy",
        "graph_id",
    ),
    "copy_args": ("bytes", "direction", "source", "destination"),
    "operator_args": ("dims_text", "types_text", "strides_text", "concrete_text", "module_text", "scope_text"),
    "triton_args": ("kernel_file_text", "grid_text", "num_warps", "num_stages"),
    "collective_args": (
        "collective_text",
        "dtype_text",
        "group_text",
        "ranks_text",
        "in_elements",
        "out_elements",
        "group_size",
        "asynchronous",
    ),
    "sync_args": ("sync_text", "wait_on_stream"),
}

_LONGEST_TEXT = 2_000


class Arguments(NamedTuple):
    """Distinct argument rows of one table.

    Attributes:
        event: events that have a row, in order.
        row: row of `rows` for each of them, or -1 where there were too many distinct rows.
        columns: names of the values.
        rows: one list of values per distinct row; missing values are None.
        omitted: events whose row was left out.
    """

    event: np.ndarray
    row: np.ndarray
    columns: list[str]
    rows: list[list[Any]]
    omitted: int


def arguments(trace: Trace, table: str, *, limit: int = 50_000, rows: np.ndarray | None = None) -> Arguments:
    """The distinct argument rows of a table (of some of its rows); the most frequent `limit` of them."""
    data = trace[table] if rows is None else {name: column[rows] for name, column in trace[table].items()}
    names = ARGUMENT_TABLES[table]
    count = len(data["event"])
    columns = [name.removesuffix("_text") for name in names]
    if count == 0:
        return Arguments(np.empty(0, np.int64), np.empty(0, np.int64), columns, [], 0)
    key = np.zeros(count, dtype=np.int64)
    for name in names:
        column = data[name]
        if column.dtype.kind == "f":
            column = np.round(np.nan_to_num(column.astype(np.float64), nan=-1.0), 2)
        distinct, code = np.unique(column, return_inverse=True)
        key = np.unique(key * len(distinct) + code, return_inverse=True)[1]
    distinct, first, row, times = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    if len(distinct) > limit:
        often = np.argsort(-times, kind="stable")[:limit]
        rank = np.full(len(distinct), -1, dtype=np.int64)
        rank[often] = np.arange(limit)
        first, row = first[often], rank[row]
    values = [[_value(trace, table, name, data[name][at]) for name in names] for at in first.tolist()]
    return Arguments(data["event"].astype(np.int64), row.astype(np.int64), columns, values, int((row < 0).sum()))


def _value(trace: Trace, table: str, name: str, value: Any) -> Any:
    if name.endswith("_text"):
        text = trace.texts[int(value)]
        return (text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…") or None
    kind = TABLES[table][name].dtype[0]
    if kind == "U":
        return str(value)
    if kind == "f":
        return round(float(value), 2) if value == value else None
    return int(value) if value >= 0 else None
