"""Acts as soon as the program itself imports a module.

The recorder must not import torch before the program does: environment variables that the program sets first
(`CUDA_VISIBLE_DEVICES`, allocator settings) would come too late.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["ImportWatch"]


class ImportWatch(importlib.abc.MetaPathFinder):
    """Calls back once, right after the named module has been executed, or at once if it is loaded already."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._asking = False

    def install(self) -> None:
        """Start watching."""
        if self._name in sys.modules:
            self._then()
        else:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Stop watching; allowed at any time."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The real spec of the watched module with a loader that calls back; None for every other module."""
        if fullname != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self)
        return spec

    def executed(self) -> None:
        """The module is ready."""
        self.uninstall()
        self._then()


class _Loader(importlib.abc.Loader):
    def __init__(self, real: importlib.abc.Loader, watch: ImportWatch) -> None:
        self._real = real
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look exactly as if it had been imported without us.
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        self._watch.executed()

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)
