"""A signal that comes while something is brought to its end: it is obeyed afterwards.

A launcher that sees one rank fail ends the others, which then are just about to say what was recorded; Ctrl-C comes while a
trace is written.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

__all__ = ["HeldSignal"]


class HeldSignal:
    """Holds a signal back in its block, in the main thread; elsewhere it does nothing.

    Attributes:
        asked: whether it has come.
    """

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self.asked = False
        self._before: Any = None
        self._held = False

    def __enter__(self) -> HeldSignal:
        try:
            self._before = signal.signal(self._number, self._note)
            self._held = True
        except (ValueError, OSError):  # another thread
            pass
        return self

    def __exit__(self, *_: object) -> None:
        if not self._held:
            return
        signal.signal(self._number, self._before if self._before is not None else signal.SIG_DFL)
        if self.asked:
            os.kill(os.getpid(), self._number)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
