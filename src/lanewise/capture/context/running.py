"""The one watcher of a process: ends with it, and never acts in a fork of it."""

from __future__ import annotations

import atexit
import os
import threading
from functools import cache
from typing import Protocol

__all__ = ["claim", "release"]


class _Running(Protocol):
    def stop(self) -> None:
        """The program ends."""
        ...

    def forked(self) -> None:
        """This is another process."""
        ...


def claim(watcher: _Running) -> bool:
    """Whether it is the only one; then it is kept, so that it goes on until the program ends even if nobody holds it."""
    global _running
    with _lock:
        if _running is not None:
            return False
        _running = watcher
    _act_on_fork_and_exit()
    return True


def release() -> None:
    """Another may begin."""
    global _running
    with _lock:
        _running = None


@cache
def _act_on_fork_and_exit() -> None:
    os.register_at_fork(after_in_child=_forked)
    atexit.register(_stop_at_exit)


def _forked() -> None:
    global _running, _lock
    # The lock may be held by a thread that this process does not have.
    _lock = threading.Lock()
    watcher, _running = _running, None
    if watcher is not None:
        watcher.forked()


def _stop_at_exit() -> None:
    if _running is not None:
        _running.stop()


_running: _Running | None = None
_lock = threading.Lock()
