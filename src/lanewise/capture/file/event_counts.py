"""What an exported trace holds, counted without parsing it: enough to see that something is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Contents", "scan"]

_CHUNK = 4 << 20
_STEP = re.compile(rb'"name": "ProfilerStep#(\d+)"')

_PATTERNS = {
    "operators": (b'"cat": "cpu_op"',),
    "launches": (
        b'"name": "cudaLaunchKernel',
        b'"name": "cuLaunchKernel',
        b'"name": "cudaGraphLaunch"',
        b'"name": "hipLaunchKernel',
        b'"name": "hipExtModuleLaunchKernel"',
    ),
    "kernels": (b'"cat": "kernel"',),
    "copies": (b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"'),
    "frames": (b'"cat": "python_function"',),
    "compilations": (b"(dynamo_timed)",),
    "graph_launches": (b'"name": "cudaGraphLaunch"',),
    "dropped": (b"out of range", b"Exceeded max GPU buffer count"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Rows by what they are, different steps, and the size of the file in bytes."""

    operators: int = 0
    launches: int = 0
    kernels: int = 0
    copies: int = 0
    frames: int = 0
    steps: int = 0
    compilations: int = 0
    graph_launches: int = 0
    dropped: int = 0
    size: int = 0


def scan(path: Path, *, unfinished: int | None = None) -> Contents:
    """Counts rows in one pass at about 1 GB/s; raises OSError if the file cannot be read.

    The step `unfinished`, which the program did not complete, is not counted.
    """
    counts = dict.fromkeys(_PATTERNS, 0)
    steps: set[bytes] = set()
    size = 0
    held = b""
    with open(path, "rb") as source:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            # No pattern spans lines, so that a cut at a line end splits none.
            text = held + chunk
            cut = text.rfind(b"\n") + 1
            held, text = text[cut:], text[:cut]
            _count(text, counts, steps)
    _count(held, counts, steps)
    steps.discard(str(unfinished).encode())
    return Contents(size=size, steps=len(steps), **counts)


def _count(text: bytes, counts: dict[str, int], steps: set[bytes]) -> None:
    for name, patterns in _PATTERNS.items():
        counts[name] += sum(text.count(pattern) for pattern in patterns)
    steps.update(_STEP.findall(text))
