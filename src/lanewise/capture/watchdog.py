"""Ends a recording that grows too long or too large between two boundaries, or that has none.

A thread watches; the profiler must be stopped by the thread that started it. CPython's pending calls run a function on
the main thread between two bytecodes without touching signals, so that is where recordings can be cut.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Callable

from lanewise.capture.thread_identity import own_threads

__all__ = ["Watchdog"]

_EVERY_S = 0.05


class Watchdog:
    """Asks `due` every 50 ms and, once it answers with a reason, calls `cut(reason)` on the main thread.

    Args:
        due: on the watching thread: the reason to end, or an empty text.
        cut: on the main thread: whether it has ended; if not, it is called again.
    """

    def __init__(self, due: Callable[[], str], cut: Callable[[str], bool]) -> None:
        self._due = due
        self._cut = cut
        self._over = threading.Event()
        self._reason = ""
        self._pending = False
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._on_main)

    def start(self) -> None:
        """Watch, if this is the main thread: no other can be interrupted."""
        if threading.current_thread() is threading.main_thread():
            # Not by `threading`, which would list it among the threads of the program.
            _thread.start_new_thread(self._watch, ())

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self) -> None:
        own_threads.add(threading.get_native_id())
        while not self._over.wait(_EVERY_S):
            if self._pending:
                continue
            self._reason = self._due()
            if self._reason:
                self._pending = True
                ctypes.pythonapi.Py_AddPendingCall(self._callback, None)

    def _on_main(self, _: int | None) -> int:
        self._pending = False
        if not self._over.is_set() and self._cut(self._reason):
            self._over.set()
        return 0
