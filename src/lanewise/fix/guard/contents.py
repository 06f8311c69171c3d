"""What can change without a dictionary's being changed: lists, variables that a function closes over, sets.

Values whose identity says all are compared by it, all in one pass; what is left is looked into in every call.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_char
from gc import get_referents
from itertools import chain
from logging import Logger
from operator import attrgetter, is_
from pathlib import PurePath
from typing import Any, NamedTuple

from lanewise.fix.guard.memory import CONTENT_AT, ITEMS_AT, LENGTH_AT, USED_AT, WORD, lies_as_known
from lanewise.fix.guard.program_parts import of_library
from lanewise.fix.guard.still import Held
from lanewise.fix.telling import told, told_by_identity
from lanewise.fix.typed_torch import torch

__all__ = ["Contents", "Inside", "Quickly", "cells_of", "content_of", "inside_of", "may_change"]


_content: Any = attrgetter("cell_contents")

_DEPTH, _MOST = 4, 1000
_WRITTEN = 40
"""Values that are compared one by one."""
_PLAIN = (str, bytes, bool, int, float, complex, type(None), torch.dtype, torch.device, torch.Size)
_BY_IDENTITY = (torch.Tensor, torch.nn.Module, type, types.ModuleType, types.BuiltinFunctionType, PurePath, Logger)


class Inside(NamedTuple):
    """What some values are made of.

    Attributes:
        dicts: dictionaries, and those of plain objects. lists: lists. cells: of functions. others: values that are
            neither these nor told by their identity.
    """

    dicts: list[dict[Any, Any]]
    lists: list[Collection[Any]]
    cells: list[Any]
    others: list[Any]


def inside_of(values: Sequence[Any], cells: Sequence[Any] = ()) -> Inside:
    """Look into values, and into the variables of these cells."""
    found = Inside([], [], [], [])
    seen: set[int] = set()
    for value in values:
        _look(value, found, seen, 0)
    for cell in cells:
        _look_into_cell(cell, found, seen, 0)
    return found


def cells_of(function: Any) -> Sequence[Any]:
    """The closure of a function or method."""
    return getattr(getattr(function, "__func__", function), "__closure__", None) or ()


def may_change(value: Any) -> bool:
    """Whether there may be something in a value that is not told by its identity."""
    return type(value) not in _PLAIN and not isinstance(value, _BY_IDENTITY)


def _look(value: Any, found: Inside, seen: set[int], depth: int) -> None:
    if not may_change(value) or id(value) in seen or len(seen) > _MOST or depth > _DEPTH:
        return
    seen.add(id(value))
    if type(value) is list or (type(value) is set and not any(map(may_change, value))):
        found.lists.append(value)
        _each([*value], found, seen, depth)
    elif isinstance(value, tuple | frozenset) and not hasattr(value, "__dict__"):
        _each([*value], found, seen, depth)
    elif isinstance(value, dict):
        found.dicts.append(value)
        _each(list(value.values()), found, seen, depth)
    elif isinstance(value, types.FunctionType | types.MethodType):
        for cell in cells_of(value):
            _look_into_cell(cell, found, seen, depth + 1)
        _each([getattr(value, "__self__", None), *(value.__defaults__ or ())], found, seen, depth)
    elif isinstance(value, functools.partial):
        found.dicts.append(value.keywords)
        _each([value.func, *value.args, *value.keywords.values()], found, seen, depth)
    elif callable(value) and of_library(value):
        pass
    elif type(getattr(value, "__dict__", None)) is dict:
        found.dicts.append(vars(value))
        _each(list(vars(value).values()), found, seen, depth)
    elif told(value) == told(value) and not told_by_identity(value):  # what is too large to be told is not compared
        found.others.append(value)


def _each(values: Sequence[Any], found: Inside, seen: set[int], depth: int) -> None:
    for one in values[:_MOST]:
        _look(one, found, seen, depth + 1)


def _look_into_cell(cell: Any, found: Inside, seen: set[int], depth: int) -> None:
    found.cells.append(cell)
    _look(content_of(cell), found, seen, depth)


class Quickly(NamedTuple):
    """How to find out that nothing has changed: by what is held, by words of memory that stay, by asking."""

    held: Held = Held()
    places: Sequence[int] = ()
    same: Callable[[], bool] | None = None


class Contents:
    """Some of them, and what is in them as long as nothing has changed.

    Args:
        inside: by the reason to give once something of it has changed.
    """

    def __init__(self, inside: Mapping[str, Inside]) -> None:
        self._lists = [(one, told(one), reason) for reason, found in inside.items() for one in found.lists]
        self._cells = [(one, told(content_of(one)), reason) for reason, found in inside.items() for one in found.cells]
        self._others = [(one, told(one), reason) for reason, found in inside.items() for one in found.others]
        self._remember()

    def _remember(self) -> None:
        self._held, self._variables = [one for one, _, _ in self._lists], [cell for cell, _, _ in self._cells]
        # Of long ones the length counts, as in what is told of them.
        self._short = [one for one in self._held if len(one) <= _MOST]
        self._lengths, self._values = list(map(len, self._held)), self._now()
        self._none = not (self._lists or self._cells or self._others)

    def changed(self) -> str:
        """The reason of something that has changed, "" if nothing has."""
        if self._none or (not self._others and self._holds_the_same()):
            return ""
        # Other objects that are alike are not looked into, so they are compared as a whole.
        reason = next((why for one, before, why in self._lists + self._others if told(one) != before), "")
        reason = reason or next((why for cell, before, why in self._cells if told(content_of(cell)) != before), "")
        if reason:
            # Nothing is kept alive that has been taken out; from now on all are compared as a whole.
            self._lengths, self._values = [-1], []
        return reason

    def quickly(self) -> Quickly:
        """How to find out later that all is as now; it keeps alive what it compares with."""
        if self._none:
            return Quickly()
        if not self._others and self._holds_the_same():
            if len(self._values) <= _WRITTEN and len(self._short) == len(self._held):
                return Quickly(Held(self._held, self._variables, self._values))
            if lies_as_known():
                return self._at_once()
        return Quickly(same=lambda: not self.changed())

    def _at_once(self) -> Quickly:
        """All that lists and sets hold, always in the same order: the quickest way to make a copy of many values."""
        places = [id(one) + CONTENT_AT for one in self._variables]
        places += [id(one) + (LENGTH_AT if type(one) is list else USED_AT) for one in self._held]
        held, kept = tuple(self._short), tuple(get_referents(*self._short))
        count, addresses = len(kept), (c_char * (WORD * len(kept))).from_address
        seen = addresses(id(kept) + ITEMS_AT).raw

        def same(alive: Any = (kept, self._values)) -> bool:
            now = tuple(get_referents(*held))
            return len(now) == count and addresses(id(now) + ITEMS_AT).raw == seen

        return Quickly(places=places, same=same)

    def _holds_the_same(self) -> bool:
        return list(map(len, self._held)) == self._lengths and all(map(is_, self._now(), self._values))

    def allow_changed(self) -> None:
        """What has changed by now does not count any more."""
        self._lists = [kept for kept in self._lists if told(kept[0]) == kept[1]]
        self._cells = [kept for kept in self._cells if told(content_of(kept[0])) == kept[1]]
        self._others = [kept for kept in self._others if told(kept[0]) == kept[1]]
        self._remember()

    def _now(self) -> list[Any]:
        try:
            return [*chain.from_iterable(self._short), *map(_content, self._variables)]
        except ValueError:  # a variable that is not filled
            return [*chain.from_iterable(self._short), *map(content_of, self._variables)]


def content_of(cell: Any) -> Any:
    """What a variable of a closure holds; None where it is not filled yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
