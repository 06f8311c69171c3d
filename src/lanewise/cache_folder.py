"""Where lanewise keeps what it need not find out twice: traces, reports, plans, tuning, the compiled collector."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


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
