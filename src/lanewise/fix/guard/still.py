"""How to find out in a few steps that nothing has changed of what a fast path stands on.

What is few is asked value by value, what is many is read from memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from ctypes import c_uint64
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from lanewise.fix.guard.memory import WORD, Words
from lanewise.fix.guard.written import NO, Questions, function

__all__ = ["Held", "Still"]

_FEW = 8


class Held(NamedTuple):
    """What some lists and sets, and variables of functions, hold one after the other. It is compared by identity."""

    lists: Sequence[Collection[Any]] = ()
    cells: Sequence[Any] = ()
    values: Sequence[Any] = ()


class Still:
    """What tells that nothing has changed; it keeps alive what it compares with.

    Args:
        unchanged: is empty as soon as something has. words, seen: of memory, and what was in them. others: what else is
            asked.
    """

    def __init__(
        self, unchanged: list[bool], words: Words, seen: bytes, held: Held, others: Sequence[Callable[[], bool]]
    ) -> None:
        self._unchanged, self._words, self._seen = unchanged, words, seen
        lines, names = _ask(held), dict[str, Any]()
        names |= {f"list{at}": one for at, one in enumerate(held.lists)}
        names |= {f"cell{at}": one for at, one in enumerate(held.cells)}
        names |= {f"kept{at}": one for at, one in enumerate(held.values)}
        lines += [f"if not other{at}(): {NO}" for at in range(len(others))]
        names |= {f"other{at}": one for at, one in enumerate(others)}
        self._rest = Questions(lines, names)

    @cached_property
    def questions(self) -> Questions:
        """The same, to be asked along with others."""
        return self.beside((), b"")

    def beside(self, places: Sequence[int], seen: bytes) -> Questions:
        """The same, and whether at more places lies what was seen there: all of memory is read at once."""
        words, own = self._words, self._seen
        if places:
            words = Words([*places, *words.places], words.flags, words.unit)
        lines, names = _ask_words(words, seen + own)
        lines = [f"if not unchanged: {NO}", *lines, *self._rest.lines]
        return Questions(lines, {"unchanged": self._unchanged, **names, **self._rest.names})

    @cached_property
    def _asked(self) -> Callable[[], Any]:
        return function("", [self.questions], ["return True"])

    def reads_many(self) -> bool:
        """Whether so much of memory is read that a few words more cost next to nothing."""
        return _at_once(self._words)

    def holds(self) -> bool:
        """Whether nothing has."""
        return self._asked() is True


def _at_once(words: Words) -> bool:
    return words.unit != WORD or len(words.starts) > _FEW


def _ask_words(words: Words, seen: bytes) -> Questions:
    count = len(words.starts)
    if _at_once(words):
        names = {"words": words.array, "at": words.at, "seen": seen}
        return Questions([f"if words[at].tobytes() != seen: {NO}"], names)
    names: dict[str, Any] = {f"word{at}": c_uint64.from_address(place) for at, place in enumerate(words.starts)}
    names |= {f"seen{at}": one for at, one in enumerate(memoryview(seen).cast("Q"))}
    differ = [f"word{at}.value != seen{at}" for at in range(count)]
    return Questions([f"if {' or '.join(differ)}: {NO}"] if differ else [], names)


def _ask(held: Held) -> list[str]:
    if not held.values and not held.lists:
        return []
    groups = [[f"held{at}_{number}" for number in range(len(one))] for at, one in enumerate(held.lists)]
    variables = [f"held{at}" for at in range(len(held.cells))]
    read = [f"    [{', '.join(names)}] = list{at}" for at, names in enumerate(groups)]
    read += [f"    {name} = cell{at}.cell_contents" for at, name in enumerate(variables)]
    differ = [f"{name} is not kept{at}" for at, name in enumerate([*chain.from_iterable(groups), *variables])]
    lines = ["try:", *read, "except ValueError:", f"    {NO}  # of another length; or a variable that is not filled"]
    return [*lines, f"if {' or '.join(differ)}: {NO}"] if differ else lines
