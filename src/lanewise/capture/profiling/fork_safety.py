"""A child that is forked after the profiler was used must be able to end.

Kineto keeps a thread of its own from its first use on. A fork does not copy threads, and at the end of the child
Kineto's destructor waits for that one forever (torch 2.13, on the CPU as well). A program that forks would hang because
it was recorded.
"""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["end_without_destructors"]


def end_without_destructors() -> None:
    """This process ends right after Python's own exit handlers and those that C code registers from here on.

    Buffers of C streams are written first, the exit code is kept. Does nothing where the C library has no `on_exit`.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        # Last registered, first called. The C library's own functions serve as handlers: Python is gone by then.
        for name in ("_exit", "fcloseall"):
            libc.on_exit(ctypes.cast(getattr(libc, name), ctypes.c_void_p), None)
