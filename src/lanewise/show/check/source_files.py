"""Which file of a project a name in a trace means.

A profiler names files as Python found them: relative to a folder of `sys.path`, or in full as they were on the machine that
recorded. Readers of annotations need the path from the root of the repository. The names of a trace are only compared with
files that are there; none of them is ever followed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

__all__ = ["SourceFiles"]

_PACKAGES = {"site-packages", "dist-packages", "node_modules", "__pycache__"}
_MOST_FILES = 20_000
_LONGEST = 8  # parts of a path that are compared


class SourceFiles:
    """The Python files below a folder, hidden folders and installed packages left out.

    Args:
        root: of the repository; the working directory by default.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = (root or Path.cwd()).resolve()

    def find(self, file: str) -> str:
        """The path of a file from the root, with forward slashes; "" if it lies outside, or if several could be meant.

        A relative name that no file has is returned as it is: the program may not be here.
        """
        if not file:
            return ""
        text = file.replace("\\", "/") if os.sep == "\\" else file
        within = _within(text, self._root)
        if within and within in self._files:
            return within
        parts = tuple(part for part in text.split("/") if part not in ("", "."))
        # One name alone says too little where the whole path is known to lie elsewhere.
        shortest = 2 if os.path.isabs(text) else 1
        for length in range(min(len(parts), _LONGEST), shortest - 1, -1):
            matches = self._by_tail.get(parts[-length:], [])
            if matches:
                return matches[0] if len(matches) == 1 else ""
        return within

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(_python_files(self._root))

    @cached_property
    def _by_tail(self) -> dict[tuple[str, ...], list[str]]:
        """Files by the last parts of their paths, of which the root's own name may be the first."""
        found: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for path in sorted(self._files):
            parts = (self._root.name, *path.split("/"))
            for length in range(1, min(len(parts), _LONGEST) + 1):
                found[parts[-length:]].append(path)
        return found


def _within(file: str, root: Path) -> str:
    try:
        short = os.path.relpath(root / file, root)
    except ValueError:  # another drive, or a name that no file can have
        return ""
    short = short.replace(os.sep, "/")
    return "" if short.split("/")[0] == ".." or os.path.isabs(short) else short


def _python_files(root: Path) -> Iterator[str]:
    count = 0
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in _PACKAGES)
        for name in names:
            if name.endswith(".py"):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
                count += 1
                if count == _MOST_FILES:
                    return
