"""Records a program with each value of a sweep, a process for each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lanewise.capture.script import Program
from lanewise.capture.timing.yardstick import ASKS_FOR_PACE
from lanewise.sweep.over import Over

__all__ = ["Ended", "record"]

_LONGEST = 200


@dataclass(frozen=True)
class Ended:
    """What became of one recording: the trace, or why there is none."""

    trace: Path | None
    why: str = ""


def record(program: Program, over: Over, value: str, out: Path, options: Sequence[str]) -> Ended:
    """Record a program with a value, up to the end of the recording.

    Args:
        program: without the value. over: how it gets it. value: which.
        out: folder for the trace. options: of `lanewise run`.
    """
    at, environment = over.program_at(program, value)
    name = f"{program.name}-{over.name}-{value.replace(os.sep, '_')}"
    before = set(out.glob(f"{name}*"))
    words = ["run", "--stop", "--no-explain", *options, "--out", str(out), "--name", name, "--", *at.words]
    ended = subprocess.run(
        [sys.executable, "-m", "lanewise", *words],
        env=os.environ | environment | {ASKS_FOR_PACE: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    traces = sorted(
        (path for path in set(out.glob(f"{name}*.json.gz")) - before), key=lambda path: path.stat().st_mtime
    )
    if traces:
        return Ended(traces[-1])
    return Ended(None, _why(ended.stderr.decode(errors="replace"), ended.returncode))


def _why(said: str, code: int) -> str:
    """The last that a program said, or lanewise about it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line.removeprefix("lanewise: ") for line in lines if line.startswith("lanewise: ")]
    theirs = [line for line in lines if not line.startswith("lanewise: ")]
    last = theirs[-1] if theirs and code else ours[-1] if ours else theirs[-1] if theirs else ""
    return (last or f"exit code {code}")[:_LONGEST]
