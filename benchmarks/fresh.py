"""Runs a function in a fresh process, forked from this one.

To import torch takes seconds, which every measurement would pay alike. So a driver imports it once and forks a process
for each measurement. The driver itself must neither run an operator nor touch a device: what it has not done, no
process has done, so that a cold program is cold.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["call"]


def call(function: Callable[[], dict[str, Any]], *, seconds: float, output: Path | None = None) -> dict[str, Any]:
    """What `function` answers in a process of its own, or `{"error": ...}` if it fails or takes too long.

    Args:
        seconds: the process is stopped after them. output: file that takes all that the process prints.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(function, writing, output)
    os.close(writing)
    with contextlib.suppress(OSError):
        # In both, or a child that is late would be killed with us.
        os.setpgid(child, child)
    text = _read(reading, time.monotonic() + seconds)
    os.close(reading)
    if text is None:
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if text is None:
        return {"error": f"no result within {seconds:.0f} s"}
    return json.loads(text) if text else {"error": "the process ended without a result"}


def _answer(function: Callable[[], dict[str, Any]], writing: int, output: Path | None) -> None:
    """In the child: never returns."""
    # What it starts belongs to it, and ends with it.
    os.setpgid(0, 0)
    if output is not None:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(file, stream)
    try:
        answer = function()
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    with os.fdopen(writing, "w") as pipe:
        json.dump(answer, pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    # What other libraries do at the end of a process is not measured.
    os._exit(0)


def _read(source: int, until: float) -> str | None:
    """All text up to the end, or None if that takes too long."""
    parts: list[bytes] = []
    while (left := until - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            continue
        part = os.read(source, 1 << 16)
        if not part:
            return b"".join(parts).decode()
        parts.append(part)
    return None
