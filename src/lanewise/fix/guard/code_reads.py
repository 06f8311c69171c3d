"""What code looks up whenever it runs, and anybody may exchange: methods, globals, functions of modules.

Followed from the `forward` of modules, or from a function, through the methods and functions that these name, as far as
they are the program's own: what torch's functions do inside is torch's.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lanewise.fix.guard.contents import cells_of, content_of
from lanewise.fix.guard.program_parts import of_library

__all__ = ["HEAP_TYPE", "Reads", "dict_of_class", "reads_of"]

_MOST = 500
"""Functions that are followed."""

HEAP_TYPE = 1 << 9
"""Flag of classes that are written in Python, which can be changed."""


class Reads(NamedTuple):
    """What some code reads.

    Attributes:
        classes: whose methods and attributes it uses. names: by the identity of a dictionary of globals, that and the names
            that are read from it. values: of globals, and functions with variables.
    """

    classes: list[type]
    names: dict[int, tuple[dict[str, Any], set[str]]]
    values: list[Any]


def reads_of(modules: Sequence[Any], function: Any = None) -> Reads:
    """Of the forward passes of modules, and of a function."""
    kinds = list(dict.fromkeys(type(module) for module in modules))
    found = Reads(list(dict.fromkeys(base for kind in kinds for base in kind.__mro__ if _can_change(base))), {}, [])
    follow: list[tuple[Any, Any]] = [(function, None), *((_of_class(kind, "forward"), kind) for kind in kinds)]
    seen: set[int] = set()
    while follow and len(seen) < _MOST:
        one, owner = follow.pop()
        plain = getattr(one, "__func__", one)
        if isinstance(plain, types.FunctionType) and id(plain) not in seen:
            seen.add(id(plain))
            follow += _read(plain, owner, found)
    return found


def dict_of_class(kind: type) -> dict[str, Any]:
    """The dictionary behind the view that `vars` gives of a class."""
    return gc.get_referents(vars(kind))[0]


def _can_change(kind: type) -> bool:
    return bool(kind.__flags__ & HEAP_TYPE)


def _read(function: types.FunctionType, owner: Any, found: Reads) -> Iterator[tuple[Any, Any]]:
    """Note what a function reads; gives the functions that it may call, with the class whose methods they are."""
    names = set(_names(function.__code__))
    if owner is not None:
        yield from ((_of_class(owner, name), owner) for name in names)
    if function.__closure__:
        found.values.append(function)
        yield from ((content_of(cell), owner) for cell in cells_of(function))
    held = function.__globals__
    _note(held, names, found)
    for value in [held[name] for name in names if name in held]:
        if isinstance(value, types.ModuleType):
            inside = vars(value)
            _note(inside, names, found)
            yield from ((inside[name], None) for name in names if name in inside and not of_library(inside[name]))
        elif isinstance(value, type):
            if _can_change(value) and not of_library(value) and value not in found.classes:
                found.classes.append(value)
        else:
            found.values.append(value)
            if not of_library(value):
                yield value, None


def _of_class(kind: type, name: str) -> Any:
    """The function behind a method or property of a class; whatever else has that name."""
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if isinstance(found, property):
        return found.fget
    return found.func if isinstance(found, cached_property) else found


def _note(held: dict[str, Any], names: Iterable[str], found: Reads) -> None:
    read = {name for name in names if name in held and not isinstance(held[name], types.ModuleType)}
    if read:
        found.names.setdefault(id(held), (held, set()))[1].update(read)


def _names(code: types.CodeType) -> Iterator[str]:
    """That a function and those inside of it look up, attributes included."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)
