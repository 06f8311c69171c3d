"""Words of this process's memory that are read together, and what was in them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from gc import get_referents
from typing import Any

import numpy as np

__all__ = [
    "CONTENT_AT",
    "ITEMS_AT",
    "LENGTH_AT",
    "POINTER_AT",
    "REFERENCES_AT",
    "TYPE_AT",
    "USED_AT",
    "WORD",
    "Words",
    "lies_as_known",
]

WORD = 8
_FLAG, _MANY = 2, 8
REFERENCES_AT = 0
TYPE_AT = object.__basicsize__ - WORD
CONTENT_AT = LENGTH_AT = object.__basicsize__
"""Offsets in CPython's objects: of how often it is referred to, of the class, of what a variable of a closure holds, of the
number of values in a list."""
USED_AT = POINTER_AT = LENGTH_AT + WORD
"""Of the number of values in a set, and of the place of those of a list."""
ITEMS_AT = tuple.__basicsize__
"""Of the values of a tuple."""


class _Range:
    """As numpy sees arrays of others."""

    def __init__(self, start: int, count: int, unit: int) -> None:
        self.__array_interface__ = {"data": (start, True), "shape": (count,), "typestr": f"<u{unit}", "version": 3}


class Words:
    """What lies at some addresses, and what lay there before. That it is still there is up to who asks.

    Attributes:
        places, flags, unit: as given. starts: where each unit begins. array, at: `array[at]` reads them now. seen: the
            bytes that were there.

    Args:
        places: addresses of words, each a multiple of the size of one. flags: of bytes. unit: how many bytes are read at a
            time, with a flag those around it.
    """

    def __init__(self, places: Sequence[int], flags: Sequence[int] = (), unit: int = 0) -> None:
        self.places, self.flags = list(places), list(flags)
        # Many flags are read faster with less around them, words in one piece.
        many = len(self.flags) > max(_MANY, WORD // _FLAG * len(self.places))
        self.unit = unit = unit or (_FLAG if many else WORD)
        parts = [one + part for one in self.places for part in range(0, WORD, unit)]
        self.starts = starts = parts + [one & -unit for one in self.flags]
        first, last = min(starts, default=0), max(starts, default=-unit)
        self.array: Any = (
            np.asarray(_Range(first, (last - first) // unit + 1, unit)) if starts else np.zeros(0, np.uint64)
        )
        self.at: Any = (np.array(starts, dtype=np.uint64) - np.uint64(first)).astype(np.int64) // unit
        self.seen: bytes = self.now().tobytes()

    def now(self) -> Any:
        """What is there now, as an array."""
        return self.array[self.at]

    def same(self) -> bool:
        """Whether it is what was there."""
        return self.array[self.at].tobytes() == self.seen


@cache
def lies_as_known() -> bool:
    """Whether lists, sets, tuples and variables of closures lie in memory as is assumed here."""
    one, two = object(), object()
    numbers, names, kept = [one, two], {1, 2, 3}, (one, two)
    value: Any = one
    once = Words([id(names) + REFERENCES_AT]).now().tolist() == [sys.getrefcount(names) - 1]

    def function() -> Any:
        return value

    cells: Any = function.__closure__
    words = Words([id(cells[0]) + CONTENT_AT, id(numbers) + LENGTH_AT, id(names) + USED_AT, id(names) + TYPE_AT])
    found = [words.now().tolist()]
    value = two
    numbers.append(one)
    names.discard(1)
    found.append(words.now().tolist())
    items = Words([id(kept) + ITEMS_AT, id(kept) + ITEMS_AT + WORD]).now().tolist()
    [start] = Words([id(numbers) + POINTER_AT]).now().tolist()
    listed = Words([start + WORD * at for at in range(len(numbers))]).now().tolist()
    return (
        once
        and found == [[id(one), 2, 3, id(set)], [id(two), 3, 2, id(set)]]
        and items == [id(one), id(two)]
        and listed == list(map(id, numbers))
        and sorted(map(id, get_referents(numbers, names))) == sorted(map(id, [*numbers, *names]))
    )
