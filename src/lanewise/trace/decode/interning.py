"""Texts -> small integers, in order of first appearance."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

__all__ = ["Interner"]

K = TypeVar("K", bound=Hashable)


class Interner(dict[K, int]):
    """`interner[key]` is the key's number, given on first sight. Iteration is in order of number."""

    def __init__(self) -> None:
        super().__init__()
        self._new: list[K] = []

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self)
        self._new.append(key)
        return number

    def number(self, key: K) -> int:
        """Number of one key."""
        return self[key]

    def numbers(self, keys: Iterable[K]) -> list[int]:
        """Numbers of many keys, at the speed of a C loop."""
        return list(map(self.__getitem__, keys))

    def take_new(self) -> list[K]:
        """The keys that are new since the last call, in order of number."""
        new, self._new = self._new, []
        return new
