"""How long a thread has waited for a processor, by Linux: what took longer meanwhile may be the work of others."""

from __future__ import annotations

import os

__all__ = ["CROWDED", "ProcessorWait"]

CROWDED = 0.05
"""Of the time: a thread that waits longer for a processor shares it with others."""


class ProcessorWait:
    """Of one thread of this process.

    Args:
        thread: its number; 0 for the calling one.
    """

    def __init__(self, thread: int = 0) -> None:
        path = f"/proc/self/task/{thread}/schedstat" if thread else "/proc/thread-self/schedstat"
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def ns(self) -> int:
        """So far, ns; 0 where the system does not say."""
        return int(os.pread(self._file, 64, 0).split()[1]) if self._file >= 0 else 0

    def close(self) -> None:
        """Nobody asks any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
