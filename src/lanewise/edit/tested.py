"""Edits judged by a command, such as the tests of a project: the files hold the edits for as long as it runs."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lanewise.edit.left_over import forget, keep, terminated_in_order
from lanewise.edit.source_text import Source, write_source
from lanewise.errors import LanewiseError, UsageError

__all__ = ["in_place", "passes"]

_LONGEST_S = 3600


@contextmanager
def in_place(before: Mapping[Path, Source], after: Mapping[Path, Source]) -> Generator[None]:
    """Files with their edits, put back to the byte in the end, with their times. Raises LanewiseError if one cannot be
    written."""
    times = {path: path.stat() for path in after}
    with terminated_in_order():
        try:
            for path, source in after.items():
                keep(path, source.text.encode(source.encoding))
                write_source(path, *source)
            yield
        finally:
            for path in after:
                write_source(path, *before[path])
                os.utime(path, ns=(times[path].st_atime_ns, times[path].st_mtime_ns))
                forget(path)


def passes(command: str) -> tuple[bool, str]:
    """Whether a command ends with exit code 0, and the last line that it wrote.

    Raises:
        UsageError: there is no such command. LanewiseError: it does not end.
    """
    words = shlex.split(command)
    # Files that change and change back within a second must not be taken for what was compiled of them before.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_LONGEST_S,
            check=False, env=environment,
        )  # fmt: skip
    except (OSError, IndexError) as error:
        raise UsageError(f"--test cannot run {command!r}: {getattr(error, 'strerror', None) or 'no command'}") from None
    except subprocess.TimeoutExpired:
        raise LanewiseError(f"{command} has not ended after an hour") from None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return done.returncode == 0, lines[-1][:200] if lines else f"exit code {done.returncode}"
