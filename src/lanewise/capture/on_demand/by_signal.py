"""A signal asks for a recording: `kill -USR2 PID`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from lanewise.errors import LanewiseError, UsageError

__all__ = ["SignalAsks", "signal_of"]

_ALLOWED = ("SIGUSR1", "SIGUSR2")
"""Those that mean nothing of their own."""


def signal_of(name: str) -> signal.Signals:
    """`USR2` or `SIGUSR2`. UsageError for another."""
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if full not in _ALLOWED or not hasattr(signal, full):
        raise UsageError(f"a recording can be asked for by the signals USR1 and USR2, not by {name}")
    return signal.Signals[full]


class SignalAsks:
    """Calls `ask` when the signal comes; until `uninstall`, or until the program handles it itself."""

    def __init__(self, number: signal.Signals, ask: Callable[[], object]) -> None:
        self._number = number
        self._ask = ask

    def install(self) -> None:
        """LanewiseError where the signal cannot be had."""
        if signal.getsignal(self._number) is not signal.SIG_DFL:
            raise LanewiseError(f"{self._number.name} does not ask for a recording: the program uses it itself")
        try:
            signal.signal(self._number, self._came)
        except ValueError:
            raise LanewiseError(
                f"{self._number.name} does not ask for a recording: signals can be taken on the main thread only"
            ) from None

    def uninstall(self) -> None:
        """The signal does what it did before."""
        theirs: Any = signal.getsignal(self._number)
        if theirs == self._came:
            try:
                signal.signal(self._number, signal.SIG_DFL)
            except ValueError:  # another thread
                return

    def _came(self, _number: int, _frame: FrameType | None) -> None:
        self._ask()
