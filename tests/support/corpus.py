"""Where the real traces are: the small copies in tests/data, and the full corpus beside a checkout where it exists."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lanewise.measure.facts import Facts
from lanewise.trace.reader import read

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data" / "h100"
CORPUS = REPOSITORY.parent / "shared" / "traces"
H100 = CORPUS / "h100"
PUBLIC = CORPUS / "public"


def trace_path(name: str) -> Path:
    """Path of an H100 trace by its stem; skips the test where only the full corpus has it and that is absent."""
    for folder in (DATA, H100):
        path = folder / f"{name}.json.gz"
        if path.exists():
            return path
    pytest.skip(f"{name} is in the full corpus only")


def fast_or_slow(path: Path) -> Any:
    """A trace as a parameter. Of the full corpus one in four is fast, as they are recordings of one profiler; those that
    others have published all are."""
    ours = path.is_relative_to(CORPUS) and not path.is_relative_to(PUBLIC)
    marks = [pytest.mark.slow] if ours and zlib.crc32(path.name.encode()) % 4 else []
    return pytest.param(path, marks=marks, id=path.name.removesuffix(".gz").removesuffix(".json"))


@cache
def truth() -> dict[str, dict[str, Any]]:
    """`truth.json.gz`: per run the step time without the profiler and torch's own key_averages."""
    for folder in (DATA, H100):
        path = folder / "truth.json.gz"
        if path.exists():
            return json.loads(gzip.decompress(path.read_bytes()))
    return {}


def unprofiled_us(name: str) -> float | None:
    """Step time without the profiler, us, where it was measured."""
    return truth().get(name, {}).get("unprofiled_us_per_step")


@cache
def facts_of(name: str, *, with_unprofiled: bool = False) -> Facts:
    """Facts of an H100 trace; read once per test run."""
    us = unprofiled_us(name) if with_unprofiled else None
    return Facts(read(trace_path(name), cache=False), unprofiled_ns=round(us * 1e3) if us else None)
