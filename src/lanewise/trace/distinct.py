"""The distinct ids of a column, in order: by marking them, where sorting or hashing millions of them would take seconds."""

from __future__ import annotations

import numpy as np

__all__ = ["distinct"]

# Marking costs a byte per possible id: for a few ids among very many, sorting is cheaper.
_SPARSE = 64


def distinct(ids: np.ndarray, below: int) -> np.ndarray:
    """What `numpy.unique` gives, for ids from 0 up to (not including) `below`."""
    if len(ids) * _SPARSE < below:
        return np.unique(ids)
    seen = np.zeros(below, dtype=bool)
    seen[ids] = True
    return np.flatnonzero(seen).astype(ids.dtype, copy=False)
