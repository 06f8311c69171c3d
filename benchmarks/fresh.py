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

__all__ = ["Fork", "call"]


def call(function: Callable[[], dict[str, Any]], *, seconds: float, output: Path | None = None) -> dict[str, Any]:
    """What `function` answers in a process of its own, or `{"error": ...}` if it fails or takes too long.

    Args:
        seconds: the process is stopped after them. output: file that takes all that the process prints.
    """
    fork = Fork(function, output)
    answer = fork.answer(time.monotonic() + seconds)
    if answer is None:
        fork.stop()
        return {"error": f"no result within {seconds:.0f} s"}
    return answer


class Fork:
    """A process that computes an answer; several may run at a time.

    Args:
        function: what it answers. output: file that takes all that it prints.
    """

    def __init__(self, function: Callable[[], dict[str, Any]], output: Path | None = None) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._reading, writing = os.pipe()
        self._parts: list[bytes] = []
        self._child = os.fork()
        if self._child == 0:
            os.close(self._reading)
            _answer(function, writing, output)
        os.close(writing)
        with contextlib.suppress(OSError):
            # In both, or a child that is late would be killed with us.
            os.setpgid(self._child, self._child)

    def answer(self, until: float = 0.0) -> dict[str, Any] | None:
        """Its answer, `{"error": ...}` if it failed; None if there is none yet at that time of the monotonic clock."""
        while select.select([self._reading], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(self._reading, 1 << 16)
            if part:
                self._parts.append(part)
                continue
            self._close()
            text = b"".join(self._parts).decode()
            return json.loads(text) if text else {"error": "the process ended without a result"}
        return None

    def ask_to_end(self) -> None:
        """SIGTERM, which the function may answer with what it has."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGTERM)

    def kill(self) -> None:
        """End it, and whatever it has started, without waiting for that: giving back a device may take seconds."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)

    def stop(self) -> None:
        """End it, and whatever it has started."""
        self.kill()
        self._close()

    def _close(self) -> None:
        os.close(self._reading)
        os.waitpid(self._child, 0)


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
