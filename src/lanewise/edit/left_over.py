"""What a run that was killed has left behind: files with edits that were only being judged, and edited copies beside them.

A run that ends in any other way leaves nothing. What was in a file before is kept beside it for as long as it holds edits,
and put back by the next run, unless somebody has written to the file since.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanewise.edit.source_text import write_bytes

__all__ = ["beside", "forget", "keep", "put_back_left", "terminated_in_order"]

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def keep(path: Path, edited: bytes) -> None:
    """Keep what is in a file, which is about to hold something else. Raises LanewiseError if nothing can be written."""
    write_bytes(_kept(path), hashlib.sha256(edited).hexdigest().encode() + b"\n" + path.read_bytes())


def forget(path: Path) -> None:
    """The file is as it was, or as it was wanted."""
    _kept(path).unlink(missing_ok=True)


def put_back_left(path: Path) -> bool:
    """Put back what a run that was killed has left in a file; whether there was anything. Its copies beside it go, too."""
    for one in path.parent.glob(f".{path.stem}-lanewise-fix-*.py"):
        if not _runs(one.stem.rpartition("-")[2]):
            one.unlink(missing_ok=True)
    try:
        digest, _, before = _kept(path).read_bytes().partition(b"\n")
        ours = hashlib.sha256(path.read_bytes()).hexdigest().encode() == digest
    except OSError:
        return False
    if ours:
        write_bytes(path, before)
    forget(path)
    return ours


def beside(path: Path) -> Path:
    """Where the edited copy of a script is while it runs."""
    return path.with_name(f".{path.stem}-lanewise-fix-{os.getpid()}.py")


@contextmanager
def terminated_in_order() -> Generator[None]:
    """Being asked to end is an exception inside, so that everything is put back on the way out."""
    before: dict[Any, Any] = {}

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    try:
        if threading.current_thread() is threading.main_thread():
            before = {one: signal.signal(one, end) for one in _SIGNALS if signal.getsignal(one) is signal.SIG_DFL}
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _kept(path: Path) -> Path:
    return path.with_name(f".{path.name}.lanewise-before")


def _runs(process: str) -> bool:
    """Whether a process is there; where that cannot be asked, it is taken for one that is."""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True
