"""Files of one program in one folder: named after the moment, the oldest deleted."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

__all__ = ["name_now", "rotate"]

_MOMENT = "%Y%m%d-%H%M%S"


def name_now(program: str) -> str:
    """First part of the name of a file that begins now: names in their order are in the order of time."""
    return f"{program}-{time.strftime(_MOMENT)}"


def rotate(folder: Path, program: str, rank: str, keep: int, ending: str) -> None:
    """Delete all but the latest so many files that were named by `name_now`; others are not touched.

    Args:
        rank: what ranks of a job have in their names, as `save.rank_suffix`. ending: of the names.
    """
    ours = re.compile(rf"{re.escape(program)}-(\d{{8}}-\d{{6}}){re.escape(rank)}(?:-(\d+))?{re.escape(ending)}")
    found: list[tuple[str, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if named := ours.fullmatch(path.name):
                found.append((named[1], int(named[2] or 1), path))
    for _, _, path in sorted(found)[:-keep]:
        with contextlib.suppress(OSError):
            path.unlink()
