"""Where lanewise keeps what it need not find out twice (traces, reports, plans, tuning, the compiled collector), and what
it should remember of its user."""

from __future__ import annotations

import os
import sys
import zlib
from functools import cache
from pathlib import Path

__all__ = ["cache_folder", "code_state", "state_folder"]


def cache_folder() -> Path:
    """`LANEWISE_CACHE_DIR`, or a folder where the system keeps caches. It need not exist."""
    if chosen := os.environ.get("LANEWISE_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lanewise"


def state_folder() -> Path:
    """`LANEWISE_STATE_DIR`, or a folder where the system keeps what programs remember. It need not exist."""
    if chosen := os.environ.get("LANEWISE_STATE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Application Support")
    else:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "lanewise"


@cache
def code_state() -> str:
    """Changes with every change of this package: names, sizes and times of change of its files. What is kept by it is never
    that of other code."""
    state: list[tuple[str, int, int]] = []
    for folder, _, files in os.walk(Path(__file__).parent):
        for file in files:
            if file.endswith(".py"):
                status = os.stat(os.path.join(folder, file))
                state.append((os.path.join(folder, file), status.st_size, status.st_mtime_ns))
    return f"{zlib.crc32(repr(sorted(state)).encode()):08x}"
