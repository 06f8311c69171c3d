"""How to find out in a few steps that nothing has changed of what a fast path stands on.

What is few is written out as a function, value by value, since a loop takes three times as long; what is many is read from
memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from ctypes import c_uint64
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from lanewise.fix.guard.memory import Words

__all__ = ["Held", "Still"]

_FEW = 8


class Held(NamedTuple):
    """What some lists and sets, and variables of functions, hold one after the other. It is compared by identity."""

    lists: Sequence[Collection[Any]] = ()
    cells: Sequence[Any] = ()
    values: Sequence[Any] = ()


class Still(NamedTuple):
    """What tells that nothing has changed.

    Attributes:
        unchanged: is empty as soon as something has. words, at, seen: `words[at].tobytes()` is what is there now, and what
            was; None if it is not asked. rest: what else has to be asked, and keeps alive what it compares with.
    """

    unchanged: list[bool]
    words: Any
    at: Any
    seen: bytes
    rest: Callable[[], bool] | None

    @classmethod
    def of(
        cls, unchanged: list[bool], words: Words, seen: Any, held: Held, others: Sequence[Callable[[], bool]]
    ) -> Still:
        """Of words of memory and what was in them, what is held, and other things that are asked."""
        few = words.places if len(words.places) <= _FEW else []
        rest = None
        if few or held.lists or held.cells or others:
            asks = _written(tuple(map(len, held.lists)), len(held.cells), len(few), len(others))
            read = [c_uint64.from_address(place) for place in few]
            rest = asks(held.lists, held.cells, held.values, read, seen.tolist() if few else (), others)
        if few or not words.places:
            return cls(unchanged, None, None, b"", rest)
        return cls(unchanged, words.array, words.at, seen.tobytes(), rest)

    def holds(self) -> bool:
        """Whether nothing has."""
        if not self.unchanged or (self.words is not None and self.words[self.at].tobytes() != self.seen):
            return False
        return self.rest is None or self.rest()


@lru_cache(maxsize=64)
def _written(lengths: tuple[int, ...], cells: int, words: int, others: int) -> Callable[..., Callable[[], bool]]:
    """For so many lists of these lengths, variables, words and others: what makes the function that asks about them."""
    groups = [[f"v{at}_{number}" for number in range(length)] for at, length in enumerate(lengths)]
    held = [*chain.from_iterable(groups), *(f"c{at}.cell_contents" for at in range(cells))]
    asked = [f"w{at}.value == s{at}" for at in range(words)]
    asked += [f"{value} is k{at}" for at, value in enumerate(held)]
    asked += [f"o{at}()" for at in range(others)]
    lines = [f"[{', '.join(names)}] = l{at}" for at, names in enumerate(groups)]
    given = {"l": len(lengths), "c": cells, "k": len(held), "w": words, "s": words, "o": others}
    source = f"""
def of({", ".join(f"all_{name}" for name in given)}):
    {"; ".join(f"[{', '.join(f'{name}{at}' for at in range(count))}] = all_{name}" for name, count in given.items())}

    def still():
        try:
            {"; ".join(lines) or "pass"}
            return {" and ".join(asked)}
        except ValueError:  # of another length; or a variable that is not filled
            return False

    return still
"""
    names: dict[str, Any] = {}
    exec(source, names)
    return names["of"]
