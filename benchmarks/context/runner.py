"""Runs each measurement in a fresh process, forked from one that has imported torch and used no device."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from typing import Any, NamedTuple

__all__ = ["Job", "run"]


class Job(NamedTuple):
    """A measurement: see `benchmarks.context.measure`."""

    kind: str
    program: str
    arm: str
    count: int


def run(job: Job, device: str, seconds: float) -> dict[str, Any]:
    """The answer of one process; `{"error": …}` if it fails or takes longer than `seconds`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as answer:
            answer.write(json.dumps(_measure(job, device)))
        # What other libraries do at the end of a process is not measured.
        os._exit(0)
    os.close(writing)
    text = _read(reading, time.monotonic() + seconds)
    os.close(reading)
    if text is None:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if text is None:
        return {"error": f"took longer than {seconds:.0f} s"}
    return json.loads(text) if text else {"error": "the process ended without an answer"}


def _measure(job: Job, device: str) -> dict[str, Any]:
    try:
        import torch
        from benchmarks.context.measure import KINDS

        torch.set_num_threads(1)
        return KINDS[job.kind](job.program, job.arm, device, job.count)
    except BaseException as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}


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
