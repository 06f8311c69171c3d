"""The Python files that are meant by a path, and which of them others use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["scripts_in", "used_by_others"]

_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env"})
_IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t].*$", re.MULTILINE)


def scripts_in(path: Path) -> list[Path]:
    """A file itself; of a folder all Python files in it, except those that are hidden, built or installed."""
    if not path.is_dir():
        return [path]
    return sorted(
        one
        for one in path.rglob("*.py")
        if not any(part.startswith(".") or part in _NOT_OURS for part in one.relative_to(path).parts)
    )


def used_by_others(texts: Sequence[tuple[Path, str]]) -> set[Path]:
    """Files whose name is in an import of another one."""
    lines = [(path, "\n".join(_IMPORTS.findall(text))) for path, text in texts]
    return {
        path
        for path, _ in texts
        if any(
            other != path
            and re.search(rf"\b{re.escape(path.stem if path.stem != '__init__' else path.parent.name)}\b", said)
            for other, said in lines
        )
    }
