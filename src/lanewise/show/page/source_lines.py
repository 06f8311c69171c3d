"""Source lines beside the frames of a trace: only where the user asked for them, and only from the user's own folder.

A trace is untrusted: a frame may name any file. So a name is never followed out of the folder that the user gave; only
regular `.py` files of the program are read, no hidden folder, no installed package; and everything has a bound. What is
not shown is counted by reason.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lanewise.trace.frames import is_library, parse_frame

__all__ = ["Excerpt", "SourceLines"]

_BEFORE, _AFTER = 3, 24
_LONGEST_LINE = 240
_LARGEST_FILE = 2_000_000  # bytes
_MOST_EXCERPTS = 400
_MOST_CHARACTERS = 400_000
_PACKAGES = {"site-packages", "dist-packages", "node_modules", "__pycache__"}


class Excerpt(NamedTuple):
    """Lines of a file around the one that a frame names; lines count from 1."""

    first: int
    line: int
    lines: list[str]


class SourceLines:
    """Reads excerpts below one folder, within bounds.

    Args:
        folder: where the program lies; relative names in frames are relative to it.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self._files: dict[str, list[str] | str] = {}

    def excerpts(self, frames: Iterable[str]) -> tuple[dict[str, Excerpt], dict[str, int]]:
        """Excerpts by frame (`train.py(12): main`), and how many frames have none, by reason.

        Frames of libraries are passed over in silence: nobody expects them.
        """
        found: dict[str, Excerpt] = {}
        omitted: Counter[str] = Counter()
        characters = 0
        for name in frames:
            frame = parse_frame(name)
            if is_library(frame.file) or name in found:
                continue
            lines = self._lines(frame.file)
            if isinstance(lines, str):
                omitted[lines] += 1
                continue
            if not 1 <= frame.line <= len(lines):
                omitted["the file has no such line any more"] += 1
                continue
            first = max(1, frame.line - _BEFORE)
            excerpt = Excerpt(first, frame.line, [_shown(line) for line in lines[first - 1 : frame.line + _AFTER]])
            size = sum(map(len, excerpt.lines))
            if len(found) == _MOST_EXCERPTS or characters + size > _MOST_CHARACTERS:
                omitted[f"more than {_MOST_EXCERPTS} places or {_MOST_CHARACTERS:,} characters"] += 1
                continue
            characters += size
            found[name] = excerpt
        return found, dict(omitted)

    def _lines(self, file: str) -> list[str] | str:
        """Lines of a file, or why they are not shown."""
        if file not in self._files:
            try:
                self._files[file] = self._read(file)
            except (OSError, ValueError):
                self._files[file] = "no such file below the folder of the sources"
        return self._files[file]

    def _read(self, file: str) -> list[str] | str:
        path = (self._root / file).resolve(strict=True)
        if not path.is_relative_to(self._root):
            return "outside the folder of the sources"
        parts = path.relative_to(self._root).parts
        if path.suffix != ".py" or not file.endswith(".py"):
            return "not a .py file"
        if any(part.startswith(".") or part in _PACKAGES for part in parts):
            return "in a hidden folder or an installed package"
        # The path is resolved: whatever became a link since then is not followed, and a pipe does not make us wait.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path, flags)
        with os.fdopen(handle, "rb") as opened:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return "not a regular file"
            if status.st_size > _LARGEST_FILE:
                return f"files above {_LARGEST_FILE / 1e6:g} MB"
            return opened.read(_LARGEST_FILE + 1).decode("utf-8", "replace").splitlines()


def _shown(line: str) -> str:
    """A line without controls and direction marks, which could show it as something else; cut where very long."""
    line = line.expandtabs(4).rstrip()
    if len(line) > _LONGEST_LINE:
        line = line[: _LONGEST_LINE - 1] + "…"
    return "".join("\ufffd" if unicodedata.category(c) in {"Cc", "Cf", "Cs"} else c for c in line)
