"""How to find out in a few steps that nothing has changed of what a fast path stands on.

What is few is asked value by value, what is many is read from memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from ctypes import c_uint64
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from lanewise.fix.guard.memory import Words
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

    Attributes:
        questions: the same, to be asked along with others.

    Args:
        unchanged: is empty as soon as something has. words, seen: words of memory, and what was in them. others: what else
            is asked.
    """

    def __init__(
        self, unchanged: list[bool], words: Words, seen: Any, held: Held, others: Sequence[Callable[[], bool]]
    ) -> None:
        lines, names = [f"if not unchanged: {NO}"], dict[str, Any](unchanged=unchanged)
        if len(words.places) > _FEW:
            lines.append(f"if words[at].tobytes() != seen: {NO}")
            names |= {"words": words.array, "at": words.at, "seen": seen.tobytes()}
        elif words.places:
            lines.append(f"if {' or '.join(f'word{at}.value != seen{at}' for at in range(len(seen)))}: {NO}")
            names |= {f"word{at}": c_uint64.from_address(place) for at, place in enumerate(words.places)}
            names |= {f"seen{at}": one for at, one in enumerate(seen.tolist())}
        if held.values or held.lists:
            lines += _ask(held)
            names |= {f"list{at}": one for at, one in enumerate(held.lists)}
            names |= {f"cell{at}": one for at, one in enumerate(held.cells)}
            names |= {f"kept{at}": one for at, one in enumerate(held.values)}
        lines += [f"if not other{at}(): {NO}" for at in range(len(others))]
        names |= {f"other{at}": one for at, one in enumerate(others)}
        self.questions = Questions(lines, names)

    @cached_property
    def _asked(self) -> Callable[[], Any]:
        return function("", [self.questions], ["return True"])

    def holds(self) -> bool:
        """Whether nothing has."""
        return self._asked() is True


def _ask(held: Held) -> list[str]:
    groups = [[f"held{at}_{number}" for number in range(len(one))] for at, one in enumerate(held.lists)]
    variables = [f"held{at}" for at in range(len(held.cells))]
    read = [f"    [{', '.join(names)}] = list{at}" for at, names in enumerate(groups)]
    read += [f"    {name} = cell{at}.cell_contents" for at, name in enumerate(variables)]
    differ = [f"{name} is not kept{at}" for at, name in enumerate([*chain.from_iterable(groups), *variables])]
    lines = ["try:", *read, "except ValueError:", f"    {NO}  # of another length; or a variable that is not filled"]
    return [*lines, f"if {' or '.join(differ)}: {NO}"] if differ else lines
