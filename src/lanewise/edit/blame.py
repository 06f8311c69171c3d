"""Which of several edits is the one that does harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["bad_ones"]

One = TypeVar("One")


def bad_ones(edits: Sequence[One], holds: Callable[[Sequence[One]], bool]) -> list[One]:
    """The edits without which the others hold, found by halving.

    `holds`: whether the program is right with these edits alone; it is without any. Asked about log2(n) times per bad one.
    """
    left, bad = list(edits), list[One]()
    while left and not holds(left):
        right, wrong = 0, len(left)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if holds(left[:middle]):
                right = middle
            else:
                wrong = middle
        bad.append(left.pop(wrong - 1))
    return bad
