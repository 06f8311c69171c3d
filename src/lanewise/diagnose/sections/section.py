"""What every measure is shown as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.report.evidence_columns import Headings
from lanewise.report.model import TextBlock

__all__ = ["Section", "Source", "columns_of"]


class Source(NamedTuple):
    """A table before it is sorted and cut: its title, all of its columns, and the type and label of those shown."""

    title: str
    data: Columns
    headings: Headings


class Section(NamedTuple):
    """One measure.

    Attributes:
        statements: sentences with their numbers; what to record where the trace lacks it.
        tables: by key.
    """

    statements: list[TextBlock]
    tables: dict[str, Source]


def columns_of(rows: Sequence[Mapping[str, Any]], headings: Headings) -> Columns:
    """Rows as columns; texts stay objects."""
    return Columns(
        {
            one.key: np.array([row[one.key] for row in rows], dtype=object if one.type == "text" else np.float64)
            for one in headings
        }
    )
