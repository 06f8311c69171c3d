"""What lanewise says inside of somebody else's program: whole lines on standard error, and never an exception.

The program may close its standard error, or put a file, a pipe or a test's capture in its place; what it does there is
its own. So lines go past `sys.stderr`, and only to the file that stood there when lanewise came. Until that is there
again they wait.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque

from lanewise.micro import with_micro

__all__ = ["STDERR", "STDOUT", "is_as_it_was", "say"]

STDOUT, STDERR = 1, 2
_MOST_LINES = 200


def say(text: str) -> None:
    """Prints one line of ours, or keeps it for later, or gives it up; never raises."""
    _waiting.append(f"lanewise: {text}\n")
    while _waiting and is_as_it_was(STDERR):
        try:
            _write(_waiting.popleft())
        except (OSError, IndexError):
            return


def is_as_it_was(descriptor: int) -> bool:
    """Whether standard output (1) or error (2) is what it was at the start, and somebody can read it."""
    try:
        if _at_start.get(descriptor) is None or _identity(descriptor) != _at_start[descriptor]:
            return False
        asked = select.poll()
        asked.register(descriptor, 0)
        # A pipe without a reader: to write to it is a signal, which ends programs that have asked for it.
        return not asked.poll(0)
    except (OSError, ValueError):
        return False


def _write(line: str) -> None:
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    line = with_micro(line, encoding) if os.isatty(STDERR) else line
    rest = line.encode(encoding, errors="backslashreplace")
    while rest:
        rest = rest[os.write(STDERR, rest) :]


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_rdev


_waiting: deque[str] = deque(maxlen=_MOST_LINES)
_at_start = {descriptor: _identity(descriptor) for descriptor in (STDOUT, STDERR)}
