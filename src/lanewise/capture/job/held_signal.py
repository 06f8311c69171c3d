"""A request to end that comes while the report of a job is made: it is obeyed afterwards.

A launcher that sees one rank fail ends the others, which then are just about to say what was recorded.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

__all__ = ["HeldTermination"]


class HeldTermination:
    """Holds SIGTERM back in its block, in the main thread; elsewhere it does nothing.

    Attributes:
        asked: whether it has come.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None
        self._held = False

    def __enter__(self) -> HeldTermination:
        try:
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._held = True
        except (ValueError, OSError):  # another thread
            pass
        return self

    def __exit__(self, *_: object) -> None:
        if not self._held:
            return
        signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
        if self.asked:
            os.kill(os.getpid(), signal.SIGTERM)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
