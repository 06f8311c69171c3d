"""The result of a measure: named columns of equal length.

Measures return this instead of a polars frame so that `explain` on a small trace does not pay for importing polars;
`frame()` gives the polars frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.trace.groups import grouped

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Columns", "group_statistics", "sums"]


class Columns(Mapping[str, np.ndarray]):
    """Named columns of equal length; a mapping from name to array."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns differ in length: {sorted(lengths)}")
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def height(self) -> int:
        """Number of rows."""
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The first `limit` rows (all by default) as dictionaries of plain Python values."""
        lists = {name: column[:limit].tolist() for name, column in self._columns.items()}
        names = list(lists)
        return [dict(zip(names, values, strict=True)) for values in zip(*lists.values(), strict=True)]

    def take(self, rows: np.ndarray) -> Columns:
        """The given rows, in the given order; an index array or a mask."""
        return Columns({name: column[rows] for name, column in self._columns.items()})

    def sorted_by(self, name: str, *, descending: bool = True) -> Columns:
        """Rows in the order of one column; equal rows keep their order."""
        key = self._columns[name]
        order = np.argsort(-key if descending else key, kind="stable")
        return self.take(order)

    def frame(self) -> pl.DataFrame:
        """The same columns as a polars frame."""
        import polars as pl

        return pl.DataFrame({n: (c.tolist() if c.dtype == object else c) for n, c in self._columns.items()})


def sums(row: np.ndarray, value: np.ndarray, count: int) -> np.ndarray:
    """Exact sums of `value` (int64) over each of the rows 0 .. count - 1; int64, shape (count,)."""
    if np.abs(value, dtype=np.float64).sum() < 2**53:  # every partial sum is then a whole number in float64
        return np.bincount(row, weights=value, minlength=count).astype(np.int64)
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, row, value)
    return result


def group_statistics(key: np.ndarray, value: np.ndarray) -> Columns:
    """Count, total, mean, median, min, max and standard deviation of `value` per distinct `key`.

    Args:
        key: integers, shape (n,).
        value: int64, ns, shape (n,).

    Returns:
        Columns `key, count, total, mean, median, min, max, stddev`, in the order of the key. The deviation is that of
        the population (n in the denominator); the median of an even count is the mean of the middle two.
    """
    if len(key) == 0:
        ints, floats = np.empty(0, np.int64), np.empty(0, np.float64)
        return Columns(
            {
                "key": key,
                "count": ints,
                "total": ints,
                "mean": floats,
                "median": floats,
                "min": ints,
                "max": ints,
                "stddev": floats,
            }
        )
    groups = grouped(key, value)
    values, first, count = groups.value, groups.first, groups.size
    total = np.add.reduceat(values, first)
    mean = total / count
    centred = values - np.repeat(mean, count)
    stddev = np.sqrt(np.add.reduceat(centred * centred, first) / count)
    return Columns(
        {
            "key": groups.key,
            "count": count,
            "total": total,
            "mean": mean,
            "median": groups.median(),
            "min": values[first],
            "max": values[first + count - 1],
            "stddev": stddev,
        }
    )
