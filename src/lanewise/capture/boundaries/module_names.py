"""Names of the program's modules, for the trace: the profiler counts instances per class and knows no attribute."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

__all__ = ["SeenModules"]

_MOST_ROOTS = 8
_MOST_MODULES = 20_000
_MOST_BYTES = 1_000_000
"""A list of this many entries and so much text is 1 % of a trace of the usual size, and read in milliseconds."""


class SeenModules:
    """The outermost modules that were called, in order of their first call; keeps none of them alive."""

    def __init__(self) -> None:
        self._roots: list[weakref.ref[Any]] = []

    def add(self, module: Any) -> None:
        """`module` was called from outside of any other. Only the first few count."""
        if len(self._roots) < _MOST_ROOTS and all(root() is not module for root in self._roots):
            with contextlib.suppress(TypeError):
                self._roots.append(weakref.ref(module))

    def listed(self) -> list[tuple[str, str]]:
        """Path and class of every module below those still alive, as `named_modules` orders them; a path "" is a root.

        A root that does not fit is left out whole: half a list would give wrong names. Never raises.
        """
        found: list[tuple[str, str]] = []
        size = 0
        for root in self._roots:
            # Programs may override `named_modules`, and change their modules from another thread.
            with contextlib.suppress(Exception):
                part = _named(root(), _MOST_MODULES - len(found))
                bytes_of_part = sum(len(path) + len(kind) for path, kind in part)
                if size + bytes_of_part <= _MOST_BYTES:
                    found += part
                    size += bytes_of_part
        return found


def _named(module: Any, most: int) -> list[tuple[str, str]]:
    if module is None:
        return []
    part: list[tuple[str, str]] = []
    for path, inner in module.named_modules():
        if len(part) == most:
            return []
        part.append((str(path), type(inner).__name__))
    return part
