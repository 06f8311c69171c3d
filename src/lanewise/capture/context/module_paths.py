"""Names of `nn.Module` instances: the path in the network that they are part of, and their class.

Asked once for each path of frames that is new. Modules are never kept alive: when one dies, the native side is told
that its address may come to stand for another one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from lanewise.tree.watching.collected import MODULE_SEPARATOR

__all__ = ["ModuleNames"]

_MOST_ROOTS = 16
"""Networks of one class alive at a time that are told apart; a program may make them by the thousand."""


class ModuleNames:
    """Paths of modules below the outermost module of a call.

    Args:
        died: called when a known module is gone.
    """

    def __init__(self, died: Callable[[], None]) -> None:
        self._died = died
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._roots: dict[int, _Root] = {}
        self._taken: set[str] = set()

    def describe(self, module: Any, outermost: Any) -> str:
        """`network`, path in it and class, joined by `MODULE_SEPARATOR`. The network itself has the path ""."""
        known = self._known.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        root = self._root(outermost if outermost is not None else module)
        text = MODULE_SEPARATOR.join((root.name, root.path_of(module), type(module).__name__))
        self._known[id(module)] = weakref.ref(module, self._forget(id(module), None)), text
        return text

    def _root(self, module: Any) -> _Root:
        root = self._roots.get(id(module))
        if root is None or root.ref() is not module:
            name = self._free_name(type(module).__name__)
            ref = weakref.ref(module, self._forget(id(module), name))
            root = self._roots[id(module)] = _Root(ref, name)
        return root

    def _free_name(self, kind: str) -> str:
        # Numbers of networks that are gone are given away again, so that contexts do not grow with them.
        for number in range(_MOST_ROOTS):
            name = f"{kind}_{number}"
            if name not in self._taken:
                self._taken.add(name)
                return name
        return f"{kind}_*"

    def _forget(self, key: int, root_name: str | None) -> Callable[[Any], None]:
        def gone(ref: Any) -> None:
            if root_name is None:
                if (known := self._known.get(key)) is not None and known[0] is ref:
                    del self._known[key]
                self._died()
            else:
                if (root := self._roots.get(key)) is not None and root.ref is ref:
                    del self._roots[key]
                self._taken.discard(root_name)

        return gone


class _Root:
    """A network: an outermost module and the paths of what is in it."""

    def __init__(self, ref: weakref.ref[Any], name: str) -> None:
        self.ref = ref
        self.name = name
        self._paths: dict[int, str] = {}
        self._looked_at = 0

    def path_of(self, module: Any) -> str:
        """Dotted path; for a module that is not registered in the network, its class in angle brackets."""
        root = self.ref()
        if root is None or root is module:
            return ""
        if not self._holds(root, module):
            # A network that keeps changing is not looked through at every call.
            if self._looked_at < 64:
                self._looked_at += 1
                self._paths = {id(child): path for path, child in root.named_modules()}
            if not self._holds(root, module):
                return f"<{type(module).__name__}>"
        return self._paths[id(module)]

    def _holds(self, root: Any, module: Any) -> bool:
        path = self._paths.get(id(module))
        if path is None:
            return False
        try:
            return root.get_submodule(path) is module
        except AttributeError:
            return False
