"""Whether a quantity of steps grows in their course, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["LEAST_VALUES", "Growth", "growth_of"]

LEAST_VALUES = 12
"""Values from which on a trend can be told from chance."""
_SURE = 4.0
"""Standard deviations of Kendall's score: 1 in 30,000 where nothing grows."""


class Growth(NamedTuple):
    """Medians of the first and of the last third."""

    first: float
    last: float

    @property
    def by(self) -> float:
        """The increase, 0.1 for 10 %; 0 where there was nothing."""
        return self.last / self.first - 1 if self.first > 0 else 0.0


def growth_of(values: Sequence[float]) -> Growth | None:
    """How a series grows; None where it does not all along (Mann and Kendall's test), or is too short to tell.

    A step up in the middle is a trend, too; a few high values at the end are none.
    """
    n = len(values)
    if n < LEAST_VALUES:
        return None
    array = np.asarray(values, dtype=np.float64)
    score = float(np.sign(array[None, :] - array[:, None])[np.triu_indices(n, 1)].sum())
    if score < _SURE * (n * (n - 1) * (2 * n + 5) / 18) ** 0.5:
        return None
    third = n // 3
    return Growth(float(np.median(array[:third])), float(np.median(array[-third:])))
