"""Copies recordings into the labelled set, small: white space squeezed out, gzip at its best, no folder of a machine.

    python -m benchmarks.diagnosis.keep RECORDINGS... [--strip FOLDER/ ...] [--out tests/data/twins]

Events, arguments and times stay as they are; nothing is left out.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "twins"

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def squeezed(text: bytes) -> bytes:
    """The same JSON without white space outside its texts."""
    parts: list[bytes] = []
    at = 0
    for found in _STRING.finditer(text):
        parts += [re.sub(rb"\s+", b"", text[at : found.start()]), found[0]]
        at = found.end()
    return b"".join([*parts, re.sub(rb"\s+", b"", text[at:])])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--strip", nargs="*", default=[], help="beginnings of paths to leave out")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for path in asked.recordings:
        text = squeezed(gzip.decompress(path.read_bytes()))
        for prefix in asked.strip:
            text = text.replace(prefix.encode(), b"")
        (asked.out / path.name).write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main()
