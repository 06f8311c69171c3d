"""Lines of code as text, spelled as torch's profiler spells Python frames: `train.py(12): main`.

Paths are shortened to where Python found the package, so that the contexts of two machines agree.
"""

from __future__ import annotations

import os
import site
import sys
from functools import lru_cache
from types import CodeType
from typing import Any

__all__ = ["frame_name", "line_of"]


def frame_name(code: CodeType) -> str:
    """File, first line and name of a function."""
    return f"{_short(code.co_filename)}({code.co_firstlineno}): {code.co_name}"


def line_of(code: CodeType, offset: int) -> int:
    """Line of the instruction at an offset in bytes; the first line of the function if it has none."""
    for begin, end, line in code.co_lines():
        if begin <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def _short(path: str) -> str:
    for prefix in _prefixes(tuple(sys.path)):
        if path.startswith(prefix):
            return path[len(prefix) :]
    return path


@lru_cache(maxsize=4)
def _prefixes(search: tuple[str, ...]) -> list[str]:
    folders = [*search, *site.getsitepackages(), site.getusersitepackages(), site.getuserbase()]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        folders.append(os.path.dirname(os.path.dirname(torch.__file__)))
    absolute = {os.path.abspath(folder) for folder in folders}
    return sorted((folder + os.sep for folder in absolute if folder != os.sep), reverse=True)
