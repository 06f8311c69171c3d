"""Reads what Kineto and CUPTI write to standard error while the profiler starts or stops.

Their messages are the only evidence of some faults (another CUPTI subscriber, lost buffers), and they would appear in
the middle of the program's own output. Everything else that arrives meanwhile, from another thread say, is passed on.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Generator

__all__ = ["profiler_messages"]

_KINETO = re.compile(
    rb"^(?:(?:USDT|STAGE|INFO|WARNING|ERROR):?\s?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \S+\.(?:cpp|h):\d+\]|"
    rb"ERROR: External init callback must run in same thread|"
    rb"\[W\S*(?: \S+)? (?:CPUAllocator|collection|kineto_shim|profiler_kineto)\.cpp:\d+\])"
)


@contextlib.contextmanager
def profiler_messages(into: list[str]) -> Generator[None]:
    """Appends the profiler's own lines on file descriptor 2 to `into` and lets all other lines through.

    Does nothing where the descriptor is closed or no temporary file can be made.
    """
    try:
        saved = os.dup(2)
    except OSError:
        yield
        return
    try:
        held = tempfile.TemporaryFile()
    except OSError:
        os.close(saved)
        yield
        return
    os.dup2(held.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        with held:
            held.seek(0)
            for line in held:
                if _KINETO.match(line):
                    into.append(line.decode(errors="replace").rstrip())
                else:
                    os.write(2, line)
