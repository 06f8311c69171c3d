"""Words or bytes of this process's memory that are read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["memory_at"]


class _Range:
    """As numpy sees arrays of others."""

    def __init__(self, start: int, count: int, kind: str) -> None:
        self.__array_interface__ = {"data": (start, True), "shape": (count,), "typestr": f"<{kind}", "version": 3}


def memory_at(places: Sequence[int], kind: str) -> tuple[Any, Any]:
    """An array over all of these addresses, and their numbers in it: `array[numbers]` reads them now.

    Only what lies at them is read; that it is still there is up to who asks.

    Args:
        places: addresses, each a multiple of the size. kind: of each: `u8`, `u1` (unsigned, with its size in bytes).
    """
    if not places:
        return np.zeros(0, dtype=kind), np.zeros(0, dtype=np.int64)
    size = np.dtype(kind).itemsize
    first = min(places)
    array = np.asarray(_Range(first, (max(places) - first) // size + 1, kind))
    return array, (np.array(places, dtype=np.uint64) - np.uint64(first)).astype(np.int64) // size
