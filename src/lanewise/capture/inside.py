"""Inside of the program's process: begins what was ordered before its first line, and keeps its modules and ours apart.

A `click.py` or `queue.py` beside a script takes the place of the installed one there, and only there.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Generator
from importlib.machinery import PathFinder
from types import ModuleType

__all__ = ["begin", "our_modules"]

_NEEDED_LATER = frozenset({"numpy", "polars", "msgspec", "rich"})


def begin(text: str, before: frozenset[str]) -> None:
    """Begin.

    Args:
        text: what `script.become` ordered: the `module` whose `start` is called with the `order`, and the places that
            the program `searches` for modules before all others.
        before: names of the modules that plain Python has at this point.
    """
    asked = json.loads(text)
    importlib.import_module(asked["module"]).start(asked["order"])
    _apart.path[:] = sys.path
    loaded = {_root(name) for name in sys.modules} - {_root(name) for name in before}
    candidates = (loaded | _NEEDED_LATER) - {"lanewise"}
    _apart.roots = {name for name in candidates if _is_another(name, asked["searches"])}
    _apart.ours = _taken_out()


def _is_another(name: str, searches: list[str]) -> bool:
    """Whether the program would import another module by this name than we do. The same one is shared: PYTHONPATH may name
    the folder that it is installed in, and there are modules that a process can load only once, such as numpy."""
    theirs = PathFinder.find_spec(name, searches)
    if theirs is None:
        return False
    ours = getattr(sys.modules.get(name), "__spec__", None) or PathFinder.find_spec(name)
    return ours is None or ours.origin != theirs.origin


@contextlib.contextmanager
def our_modules() -> Generator[None]:
    """Inside of it, imports find what is installed, also where the program has modules of the same names."""
    if not _apart.roots:
        yield
        return
    theirs, path = _taken_out(), list(sys.path)
    sys.modules.update(_apart.ours)
    sys.path[:] = _apart.path
    try:
        yield
    finally:
        _apart.ours = _taken_out()
        sys.modules.update(theirs)
        sys.path[:] = path


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if _root(name) in _apart.roots]
    return {name: sys.modules.pop(name) for name in names}


def _root(name: str) -> str:
    return name.partition(".")[0]


class _Apart:
    """Names that both sides have modules of; our modules of these names; our path."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.ours: dict[str, ModuleType] = {}
        self.path: list[str] = []


_apart = _Apart()
