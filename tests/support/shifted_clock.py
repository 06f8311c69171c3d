"""A trace as if recorded later."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

_BASE = re.compile(rb'"baseTimeNanoseconds": *(\d+)')


def later(path: Path, target: Path, *, seconds: float) -> None:
    """Write a copy of a trace (.json.gz) whose clock is later by that."""
    text = gzip.decompress(path.read_bytes())

    def moved(found: re.Match[bytes]) -> bytes:
        return f'"baseTimeNanoseconds": {int(found[1]) + round(seconds * 1e9)}'.encode()

    text, count = _BASE.subn(moved, text)
    assert count == 1
    target.write_bytes(gzip.compress(text, 1))
