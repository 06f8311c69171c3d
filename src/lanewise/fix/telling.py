"""What tells a value apart from others that a program may be given, or may hold, in its place."""

from __future__ import annotations

import functools
import math
import types
import weakref
from array import array
from collections import deque
from collections.abc import Collection, Mapping
from enum import Enum
from logging import Logger
from pathlib import PurePath
from typing import Any

import numpy as np

from lanewise.fix.typed_torch import torch

__all__ = ["Unlike", "same_object", "told", "told_by_identity"]


_DEPTH, _MOST = 5, 1000
"""How deep a value is looked into, and how many there may be in it; what is beyond is told apart as an object."""

_BY_THEMSELVES = (str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)


class Unlike:
    """Equal to nothing, itself included in another call: a value that cannot be told from another."""


class _Same:
    """This very object, for as long as it lives; it is not kept alive."""

    __slots__ = ("_number", "_object")

    def __init__(self, value: Any) -> None:
        self._number = id(value)
        try:
            self._object: Any = weakref.ref(value)
        except TypeError:
            self._object = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self._object()
        return mine is not None and isinstance(other, _Same) and mine is other._object()

    def __hash__(self) -> int:
        return self._number


def told(value: Any) -> Any:
    """Something hashable, equal for two values only if a program cannot tell them apart.

    Numbers by type, value and sign; containers, functions and plain objects by what is in them; tensors, modules and
    what cannot be looked into by identity.
    """
    return value if type(value) in _BY_THEMSELVES else _Look().at(value, 0)


def same_object(value: Any) -> Any:
    """Something that is equal for this very object only."""
    return _Same(value)


def told_by_identity(value: Any) -> bool:
    """Whether it is told apart as an object only: nothing in it counts."""
    return type(told(value)) is _Same


class _Look:
    """One look into a value."""

    def __init__(self) -> None:
        self._left = _MOST

    def at(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _BY_THEMSELVES:
            return value
        if kind in (bool, int):
            return (kind, value)
        if kind is float:
            return (kind, value, math.copysign(1.0, value)) if value == value else (kind, "nan")
        if kind is complex:
            return (kind, self.at(value.real, depth), self.at(value.imag, depth))
        if isinstance(value, Enum):
            return (kind, value.name)
        if isinstance(value, np.generic):
            return (kind, value.dtype.str, value.tobytes())
        self._left -= 1
        if isinstance(value, PurePath):
            return (kind, str(value))
        if isinstance(value, torch.Tensor | torch.nn.Module | type | Logger) or depth >= _DEPTH or self._left < 0:
            return _Same(value)
        return self._inside(value, kind, depth + 1)

    def _all(self, values: Any, depth: int) -> tuple[Any, ...]:
        return tuple([self.at(one, depth) for one in values])

    def _inside(self, value: Any, kind: type, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            return (kind, value.dtype.str, value.shape, value.tobytes()) if value.size <= _MOST else Unlike()
        if isinstance(value, bytearray | array):
            return (kind, bytes(value)) if len(value) <= _MOST else Unlike()
        if isinstance(value, Collection) and len(value) > _MOST:
            return (kind, len(value), _Same(value))
        if isinstance(value, Mapping):
            return (kind, self._all(value.keys(), depth), self._all(value.values(), depth))
        if isinstance(value, list | tuple | deque):
            return (kind, self._all(value, depth))
        if isinstance(value, set | frozenset):
            return (kind, frozenset(self._all(value, depth)))
        if isinstance(value, slice):
            return (kind, self._all((value.start, value.stop, value.step), depth))
        if isinstance(value, types.MethodType):
            return (kind, self._all((value.__func__, value.__self__), depth))
        if isinstance(value, functools.partial):
            return (kind, self._all((value.func, value.args, value.keywords), depth))
        if isinstance(value, types.FunctionType):
            return (kind, value.__code__, self._all((*(value.__defaults__ or ()), *_closed_over(value)), depth))
        names = _attributes(value, kind)
        if names is None:
            return _Same(value)
        return (kind, tuple(names), self._all(names.values(), depth))


def _closed_over(function: Any) -> list[Any]:
    found: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            found.append(None)
    return found


def _attributes(value: Any, kind: type) -> dict[str, Any] | None:
    """What a plain object holds, by name; None for one of C, whose attributes say nothing."""
    found = dict(getattr(value, "__dict__", {}))
    slots = [name for base in kind.__mro__ for name in _names(vars(base).get("__slots__", ()))]
    for name in slots:
        if hasattr(value, name):
            found[name] = getattr(value, name)
    made_of_python = "__dict__" in dir(value) or slots
    return found if made_of_python else None


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
