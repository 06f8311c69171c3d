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
    return _folder("LANEWISE_CACHE_DIR", mac="Caches", variable="XDG_CACHE_HOME", otherwise=".cache")


def state_folder() -> Path:
    """`LANEWISE_STATE_DIR`, or a folder where the system keeps what programs remember. It need not exist."""
    return _folder("LANEWISE_STATE_DIR", mac="Application Support", variable="XDG_STATE_HOME", otherwise=".local/state")


def _folder(chosen_by: str, *, mac: str, variable: str, otherwise: str) -> Path:
    """What a variable of ours says, or ours in the system's folder: on macOS below Library, elsewhere what a variable of
    the system's says, or a folder below that of the user."""
    if chosen := os.environ.get(chosen_by):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / mac)
    else:
        base = os.environ.get(variable) or str(Path.home() / otherwise)
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
