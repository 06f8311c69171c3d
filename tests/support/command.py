"""`lanewise …` called in this process: what it prints and how it ends, without the second that a process takes to start.

What concerns a process (signals, a terminal, its encoding, a first import) needs one; that each verb works as one is
shown by the documents' commands, tests/test_readme.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

from lanewise.cli.main import main
from lanewise.cli.plain import as_given

__all__ = ["lanewise", "lanewise_in_bytes"]


def lanewise_in_bytes(
    *words: object, stdin: bytes = b"", cwd: Path | None = None, **variables: str
) -> CompletedProcess[bytes]:
    """What the command writes to its standard output and error, and its exit code."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        patch.object(sys, "argv", ["lanewise", *map(str, words)]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")),
        patch.dict(os.environ, variables),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            as_given()
    return CompletedProcess(words, code, *(stream.buffer.getvalue() for stream in (out, err)))  # type: ignore[attr-defined]


def lanewise(*words: object, stdin: str = "", cwd: Path | None = None, **variables: str) -> CompletedProcess[str]:
    """The same, as text."""
    done = lanewise_in_bytes(*words, stdin=stdin.encode(), cwd=cwd, **variables)
    return CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())
