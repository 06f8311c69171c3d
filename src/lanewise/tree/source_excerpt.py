"""The source around a line, where the file is on this machine and someone asked for it.

A trace is untrusted: a path in it is never opened as it is. It is looked up below directories that the user named, must
stay inside them after links are resolved, and must be a Python file of reasonable size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["Source", "find_source"]

_LARGEST = 4 << 20


class Source(NamedTuple):
    """Lines of a file; the first has the number `first`."""

    path: Path
    first: int
    lines: tuple[str, ...]


def find_source(file: str, line: int, roots: Sequence[Path], *, before: int = 0, after: int = 2) -> Source | None:
    """Lines around a line of a frame's file, or None if no root has it.

    Args:
        file: path as the trace gives it: relative to some directory of the program, or absolute.
        line: line number, from 1.
        roots: directories that may be read.
        before, after: number of lines around it.
    """
    for root in roots:
        found = _below(root, file)
        text = _lines(found) if found is not None else None
        if found is not None and text is not None and 1 <= line <= len(text):
            first = max(line - before, 1)
            return Source(found, first, text[first - 1 : line + after])
    return None


def _below(root: Path, file: str) -> Path | None:
    """The file below a directory: by its whole relative path, then by ever shorter ends of it."""
    base = root.resolve()
    parts = [part for part in PurePosixPath(file.replace("\\", "/")).parts if part not in {"/", "."}]
    if ".." in parts or not parts or not parts[-1].endswith(".py"):
        return None
    for skip in range(len(parts)):
        try:
            candidate = base.joinpath(*parts[skip:]).resolve()
            if candidate.is_relative_to(base) and candidate.is_file() and candidate.stat().st_size <= _LARGEST:
                return candidate
        except (OSError, ValueError):
            # A name that no file system can hold is a file that is not there.
            return None
    return None


@lru_cache(maxsize=256)
def _lines(path: Path) -> tuple[str, ...] | None:
    try:
        return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return None
