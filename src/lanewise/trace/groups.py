"""Rows by number: marked ones, distinct ids, rows in the order of their ids, the median of each group or by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Groups", "distinct", "grouped", "in_order", "mask_of", "median_of_group", "weighted_median"]

# Marking costs a byte per possible id: for a few ids among very many, sorting is cheaper.
_SPARSE = 64


def mask_of(count: int, rows: np.ndarray | Sequence[int]) -> np.ndarray:
    """Whether each of `count` rows is among these, bool, shape (count,)."""
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask


def distinct(ids: np.ndarray, below: int) -> np.ndarray:
    """What `numpy.unique` gives, for ids from 0 up to (not including) `below`: by marking them, where sorting or hashing
    millions of them would take seconds."""
    if len(ids) * _SPARSE < below:
        return np.unique(ids)
    seen = mask_of(below, ids)
    return np.flatnonzero(seen).astype(ids.dtype, copy=False)


def in_order(values: np.ndarray) -> np.ndarray:
    """What `numpy.unique` gives, by sorting alone: it hashes integers, which takes seconds for millions that differ."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


class Groups(NamedTuple):
    """Values in the order of their key, then of their size; `key`, `first` and `size` are per group.

    `value[first[g] : first[g] + size[g]]` are those of `key[g]`.
    """

    value: np.ndarray
    key: np.ndarray
    first: np.ndarray
    size: np.ndarray

    def median(self) -> np.ndarray:
        """The median of each group; of an even count the mean of the middle two."""
        return (self.value[self.first + (self.size - 1) // 2] + self.value[self.first + self.size // 2]) / 2


def grouped(key: np.ndarray, value: np.ndarray) -> Groups:
    """Integers by their key, an integer too; not empty."""
    keys, values = _sorted_pairs(key, value)
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return Groups(values, keys[first], first, np.diff(np.concatenate((first, [len(keys)]))))


def median_of_group(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """For each row the median of the values that share its key."""
    groups = grouped(key, value)
    return groups.median()[np.searchsorted(groups.key, key)]


def weighted_median(value: np.ndarray, weight: np.ndarray) -> float:
    """The value up to which half of the weight is; not empty."""
    order = np.argsort(value, kind="stable")
    reached = np.cumsum(weight[order])
    return float(value[order[np.searchsorted(reached, reached[-1] / 2)]])


def _sorted_pairs(key: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both, in the order of the key, then of the value."""
    low_key, low_value = int(key.min()), int(value.min())
    span = int(value.max()) - low_value + 1
    if (int(key.max()) - low_key + 1) * span < 2**63:
        # As one number each they sort several times faster than by two keys.
        pairs = (key.astype(np.int64) - low_key) * span + (value.astype(np.int64) - low_value)
        pairs.sort()
        keys, values = np.divmod(pairs, span)
        return (keys + low_key).astype(key.dtype), (values + low_value).astype(value.dtype)
    order = np.lexsort((value, key))
    return key[order], value[order]
