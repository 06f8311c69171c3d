"""Words of this process's memory that are read together, and what was in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from gc import get_referents
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CONTENT_AT",
    "ITEMS_AT",
    "LENGTH_AT",
    "REFERENCES_AT",
    "STILL",
    "TYPE_AT",
    "USED_AT",
    "WORD",
    "Still",
    "Words",
    "lies_as_known",
]

WORD = 8
REFERENCES_AT = 0
TYPE_AT = object.__basicsize__ - WORD
CONTENT_AT = LENGTH_AT = object.__basicsize__
"""Offsets in CPython's objects: of how often it is referred to, of the class, of what a variable of a closure holds, of the
number of values in a list."""
USED_AT = LENGTH_AT + WORD
"""Of the number of values in a set."""
ITEMS_AT = tuple.__basicsize__
"""Of the values of a tuple."""

_FEW = 8


class _Range:
    """As numpy sees arrays of others."""

    def __init__(self, start: int, count: int) -> None:
        self.__array_interface__ = {"data": (start, True), "shape": (count,), "typestr": f"<u{WORD}", "version": 3}


class Words:
    """What lies at some addresses, and what lay there before. That it is still there is up to who asks.

    Attributes:
        places: the addresses. array, at: `array[at]` reads them now. seen: the bytes that were there.

    Args:
        places: addresses, each a multiple of the size of a word.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self.places = list(places)
        first, last = min(places, default=0), max(places, default=-WORD)
        self.array: Any = np.asarray(_Range(first, (last - first) // WORD + 1)) if places else np.zeros(0, np.uint64)
        self.at: Any = (np.array(self.places, dtype=np.uint64) - np.uint64(first)).astype(np.int64) // WORD
        self.seen: bytes = self.now().tobytes()

    def now(self) -> Any:
        """What is there now, as an array."""
        return self.array[self.at]

    def same(self) -> bool:
        """Whether it is what was there."""
        return self.array[self.at].tobytes() == self.seen


class Still(NamedTuple):
    """How to find out that nothing has changed since.

    Attributes:
        words: some of memory. few, at: `few(words)` reads some now, or `words[at].tobytes()` where `few` is None.
        seen: what that gave. rest: what else has to be asked.
        alive: to be kept as long as it is asked, as no other object may get the addresses that are compared.
    """

    words: Any
    few: Callable[[Any], Any] | None
    at: Any
    seen: Any
    rest: Callable[[], bool] | None
    alive: Sequence[Any]

    @classmethod
    def of(cls, words: Words, seen: Any, rest: Callable[[], bool] | None, alive: Sequence[Any]) -> Still:
        """Of words that are read, and what was in them: a tuple of few is made sooner than an array."""
        if not 0 < len(words.places) <= _FEW:
            return cls(words.array, None, words.at, seen.tobytes(), rest, alive)
        at, found = words.at.tolist(), seen.tolist()
        return cls(memoryview(words.array), itemgetter(*at, at[0]), None, (*found, found[0]), rest, alive)

    def holds(self) -> bool:
        """Whether nothing has."""
        now = self.words[self.at].tobytes() if self.few is None else self.few(self.words)
        return now == self.seen and (self.rest is None or self.rest())


STILL = Still.of(Words(()), np.zeros(0, np.uint64), None, ())
"""Where nothing is asked."""


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
    return (
        once
        and found == [[id(one), 2, 3, id(set)], [id(two), 3, 2, id(set)]]
        and items == [id(one), id(two)]
        and sorted(map(id, get_referents(numbers, names))) == sorted(map(id, [*numbers, *names]))
    )
