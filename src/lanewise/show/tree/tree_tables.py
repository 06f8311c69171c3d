"""A tree as a table for other tools: one row per context, or per row of a flat view, as Parquet or CSV."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from lanewise.measure.columns import Columns
from lanewise.tree.model import Tree

if TYPE_CHECKING:
    import polars as pl

__all__ = ["flat_csv", "flat_parquet", "tree_csv", "tree_parquet"]


def tree_parquet(tree: Tree) -> bytes:
    """All contexts, as `Tree.frame` has them; times in ns."""
    return _parquet(tree.frame())


def tree_csv(tree: Tree) -> str:
    """The same as CSV."""
    return tree.frame().write_csv()


def flat_parquet(tree: Tree, table: Columns, by: str) -> bytes:
    """All rows of a flat view."""
    return _parquet(_frame(table))


def flat_csv(tree: Tree, table: Columns, by: str) -> str:
    """The same as CSV."""
    return _frame(table).write_csv()


def _frame(table: Columns) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame({name: table[name].tolist() for name in table})


def _parquet(frame: pl.DataFrame) -> bytes:
    written = BytesIO()
    frame.write_parquet(written)
    return written.getvalue()
