"""Finds and reads what a project says to lanewise: `[tool.lanewise]` in pyproject.toml, or a lanewise.toml of its own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lanewise.errors import InputError

__all__ = ["FILES", "find_file", "key_name", "read_section", "shown"]

FILES = ("lanewise.toml", "pyproject.toml")
"""Names of the files; where a folder holds both, the first counts."""


def find_file(start: Path, holds: Callable[[Mapping[str, Any]], bool]) -> Path | None:
    """The nearest file, from a directory upwards, whose section holds what is looked for; None if there is none.

    Raises:
        InputError: a file on the way cannot be read or is no TOML.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        for name in FILES:
            path = folder / name
            if path.is_file() and holds(read_section(path)):
                return path
    return None


def read_section(path: Path) -> Mapping[str, Any]:
    """What a file says to lanewise; empty if nothing. In a lanewise.toml `tool.lanewise` may be left out.

    Raises:
        InputError: it cannot be read or is no TOML.
    """
    section: Any = _load(path)
    if path.name == "pyproject.toml" or "tool" in section:
        for key in ("tool", "lanewise"):
            section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def shown(path: Path) -> str:
    """A path as messages name it: from the working directory if it is there or above."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
    return relative if len(relative) < len(str(path)) else str(path)


def key_name(path: Path, *keys: str) -> str:
    """A key as the file spells it: `tool.lanewise.select`, or `select` in a lanewise.toml."""
    return ".".join((*(("tool", "lanewise") if path.name == "pyproject.toml" else ()), *keys))


def _load(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {str(error)[:200]}") from None
