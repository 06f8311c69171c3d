"""A long run in periods: a tree of each hour, say, in a file of its own, of which the latest stay."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.capture.file.rotation import name_now, rotate
from lanewise.capture.file.save import free_path, rank_suffix

if TYPE_CHECKING:
    from lanewise.tree.model import Tree

__all__ = ["Periods"]


class Periods:
    """The files of one program: those of `serve.lw` are `serve-periods/serve-DATE-TIME.lw`, named after their beginnings.

    Args:
        out: the file of the whole run. seconds: of a period at least. keep: how many files; older ones are deleted.
        write: a tree to a file.
    """

    def __init__(self, out: Path, seconds: float, keep: int, write: Callable[[Tree, Path], None]) -> None:
        self._rank = rank_suffix(os.environ)
        self._program = out.stem.removesuffix(self._rank)
        self._folder = out.with_name(f"{self._program}-periods")
        self._seconds, self._keep, self._write = seconds, keep, write
        self._before: Tree | None = None
        self._begin()

    def _begin(self) -> None:
        self._name, self._began = name_now(self._program), time.monotonic()

    def look(self, tree: Tree, *, over: bool) -> None:
        """The tree so far: a period that is over, or the last one of the run, is written. OSError if it cannot be."""
        if not over and time.monotonic() - self._began < self._seconds:
            return
        from lanewise.tree.watching.stretch import stretch

        part = tree if self._before is None else stretch(tree, self._before)
        if len(part):
            self._folder.mkdir(exist_ok=True)
            self._write(part, free_path(self._folder, self._name + self._rank, ".lw"))
            rotate(self._folder, self._program, self._rank, self._keep, ".lw")
        self._before = tree
        self._begin()
