"""Launches of device operations by their ids alone: what corrections may rest on before times can be trusted."""

from __future__ import annotations

import numpy as np

__all__ = ["calls_by_id"]


def calls_by_id(correlation: np.ndarray, device: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """The API call that carries the id of each device operation, -1 where none or several do.

    Args:
        correlation: of every event. device, calls: events.
    """
    calls = calls[correlation[calls] > 0]
    if len(calls) == 0:
        return np.full(len(device), -1, dtype=np.int64)
    ids, first, count = np.unique(correlation[calls], return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(ids, correlation[device]), len(ids) - 1)
    known = (ids[at] == correlation[device]) & (count[at] == 1)
    return np.where(known, calls[first[at]], -1)
