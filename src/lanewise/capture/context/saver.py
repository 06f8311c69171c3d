"""The file of a tree: written whole or not at all, and from time to time while a program runs."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lanewise.tree.model import Tree

__all__ = ["SAVE_EVERY_SECONDS", "Saver", "write"]

SAVE_EVERY_SECONDS = 60.0


class _HasTree(Protocol):
    @property
    def tree(self) -> Tree:
        """As it is now."""
        ...


class Saver(threading.Thread):
    """Writes what there is from time to time, so that a program that is killed leaves a file.

    Args:
        source: what has the tree; it is not kept alive. path: of the file. seconds: between two writes.
    """

    def __init__(self, source: _HasTree, path: Path, seconds: float) -> None:
        super().__init__(name="lanewise-saver", daemon=True)
        self._source = weakref.ref(source)
        self._path = path
        self._seconds = seconds
        self._over = threading.Event()

    def run(self) -> None:
        """Until `stop`, or until nobody watches any more."""
        while not self._over.wait(self._seconds):
            source = self._source()
            if source is None:
                return
            with contextlib.suppress(Exception):
                write(source.tree, self._path)
            del source

    def stop(self) -> None:
        """Write no more; waits for a file that is being written."""
        self._over.set()
        if self.is_alive():
            self.join(timeout=30)


def write(tree: Tree, path: Path) -> None:
    """Complete or not at all. OSError if it cannot be written."""
    from lanewise.tree.tree_file import dumps

    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(dumps(tree))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
