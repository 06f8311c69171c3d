"""What the changelog says of a version, for its release: `release_notes.py X.Y.Z`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """The lines under `## X.Y.Z, YYYY-MM-DD`; "" if there is no such heading."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    mine = (one for one in sections if re.match(rf"{re.escape(version)}(, \d{{4}}-\d\d-\d\d)?\n", one))
    return next(mine, "\n").partition("\n")[2].strip()


def main() -> int:
    text = notes(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1].removeprefix("v"))
    if not text:
        print(f"CHANGELOG.md says nothing of {sys.argv[1]}: give its lines a heading of their own", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
