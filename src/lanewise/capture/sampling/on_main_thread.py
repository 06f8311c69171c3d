"""Runs a function on the program's main thread, between two of its instructions: there it is in no call of the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["run_on_main_thread"]

_CALL: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_kept: list[Any] = []
"""What the interpreter still points to."""
_LOOK_S = 0.005


def run_on_main_thread(function: Callable[[], None], over: threading.Event) -> bool:
    """Have it run, and wait until it has, or until `over` is set: then it does not run any more, and False is returned.

    What the function raises is raised here. A program whose main thread sits in one long call is not interrupted.
    """
    running, done = threading.Lock(), threading.Event()
    raised: list[BaseException] = []
    ran: list[bool] = []

    def called(_: int | None) -> int:
        with running:
            if not over.is_set():
                try:
                    function()
                except BaseException as error:
                    raised.append(error)
                ran.append(True)
            done.set()
        return 0

    call = _CALL(called)
    _kept.append(call)
    while ctypes.pythonapi.Py_AddPendingCall(call, None):  # there is no room for it now
        if over.wait(_LOOK_S):
            return False
    while not done.wait(_LOOK_S):
        # Where it has not begun by now it will not.
        if over.is_set() and running.acquire(blocking=False):
            running.release()
            break
    if raised:
        raise raised[0]
    return bool(ran)
