"""Which tests find the same with torch installed and without it: those of code that never needs it."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from tests.support.corpus import REPOSITORY

__all__ = ["never_needs_torch", "rooms_free_of_torch"]

CONTRACT = "Reading and explaining never needs torch"
_NEEDS_IT = re.compile(r"""(?:importorskip|find_spec)\(["']torch""")
"""What cannot run without torch says so, or it fails where there is none."""


@cache
def rooms_free_of_torch() -> frozenset[str]:
    """Rooms of which import-linter holds that nothing in them, nor what they import, imports torch."""
    configured = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (held,) = [one for one in configured["tool"]["importlinter"]["contracts"] if one["name"] == CONTRACT]
    return frozenset(name.removeprefix("lanewise.") for name in held["source_modules"])


def never_needs_torch(path: Path) -> bool:
    """Whether a file has tests of such a room, none of which asks for torch."""
    tests = REPOSITORY / "tests"
    if path.suffix != ".py" or not path.is_relative_to(tests):
        return False
    room = path.relative_to(tests).parts[0]
    return room in rooms_free_of_torch() and not _NEEDS_IT.search(path.read_text(encoding="utf-8"))
