"""A trace in which something of a program was recorded: one that holds nothing is no basis for any answer.

A profiler that was never switched on, or was stopped before the first step, writes a valid file. A CI job that reads it
must not pass.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lanewise.errors import InputError
from lanewise.trace.reader import Progress, read
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["read_recorded"]

_OF_A_PROGRAM = (
    Kind.ANNOTATION,
    Kind.OPERATOR,
    Kind.PYTHON,
    Kind.RUNTIME,
    Kind.DRIVER,
    Kind.SYNC,
    Kind.KERNEL,
    Kind.MEMCPY,
    Kind.MEMSET,
    Kind.GPU_ANNOTATION,
)
"""What a program did; the rest is the profiler's own time, counters, and rows that other tools wrote."""


def read_recorded(source: str | os.PathLike[str], *, cache: bool = True, progress: Progress | None = None) -> Trace:
    """Read one trace, for a command that answers from it; arguments as of `read`.

    Raises:
        InputError: as `read` raises it, or the trace holds nothing that a program did.
    """
    trace = read(source, cache=cache, progress=progress)
    if len(trace.of(*_OF_A_PROGRAM)) or len(trace["memory"]["time"]):
        return trace
    rows = f" in {len(trace):,} rows of other kinds" if len(trace) else ""
    cut = ", and is cut off" if trace.reading.truncated else ""
    raise InputError(
        f"{trace.reading.source}: it holds no step, no operator and no device work{rows}{cut}: record while the program "
        "runs its steps, as `lanewise run PROGRAM` does"
    )
