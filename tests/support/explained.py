"""Reports of recordings that are kept here, each explained once, whichever tests ask, in whichever of their processes."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import msgspec

from lanewise.diagnose.explain import explain
from lanewise.report.model import Report
from lanewise.trace.reader import read

__all__ = ["Shelf", "report_of"]


class Shelf:
    """Where the processes that tests are spread over put reports for each other."""

    folder: Path | None = None


@cache
def report_of(path: Path) -> Report:
    """What `explain` says of a recording by its absolute path, with default settings."""
    kept = None if Shelf.folder is None else Shelf.folder / f"{path.parent.name}-{path.name}.report"
    if kept is not None and kept.exists():
        return msgspec.msgpack.decode(kept.read_bytes(), type=Report)
    report = explain(read(path, cache=False))
    if kept is not None:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(msgspec.msgpack.encode(report))
        part.replace(kept)
    return report
