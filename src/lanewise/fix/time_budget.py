"""How long optimizing may take: a deadline that every part asks, and that ends what does not ask."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from lanewise.errors import UsageError

__all__ = ["Budget", "OutOfTime", "seconds_of", "uninterrupted"]

_FORM = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h)?\s*$")
_UNIT = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


_AGAIN_S = 0.5

_shields: list[bool] = []


class OutOfTime(BaseException):
    """A part took longer than it was given. Not an `Exception`, so that nothing on the way up mistakes it for one."""


@contextmanager
def uninterrupted() -> Generator[None]:
    """Neither the end of a time given nor Ctrl-C comes inside: for what must not be left half done, such as a capture.

    Both are dealt with as soon as the body is done, so it has to be short.
    """
    pressed: list[int] = []

    def press(number: int, _: Any) -> None:
        pressed.append(number)

    usable = threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT))
    before: Any = signal.signal(signal.SIGINT, press) if usable else None
    _shields.append(True)
    try:
        yield
    finally:
        _shields.pop()
        if usable:
            signal.signal(signal.SIGINT, before)
        if pressed:
            before(signal.SIGINT, None)


def seconds_of(text: str | float) -> float:
    """`"2m"`, `"90s"`, `45` as seconds. Raises UsageError for anything else, and for zero."""
    found = _FORM.match(str(text))
    seconds = float(found[1]) * _UNIT[found[2]] if found else 0.0
    if seconds <= 0:
        raise UsageError(f"{text!r} is no time to spend: give seconds, or 90s, 2m, 1h")
    return seconds


class Budget:
    """Time to spend, and where progress is told.

    Args:
        seconds: allowed.
        tell: called with one line at a time; by default lines go to stderr if that is a terminal.

    Attributes:
        lent: seconds by which what had to be done has exceeded it; what comes afterwards has the time that it had.
    """

    def __init__(self, seconds: float, tell: Callable[[str], None] | None = None) -> None:
        self.seconds = seconds
        self.lent = 0.0
        self._began = time.monotonic()
        self._deadlines: list[float] = []
        self._tell = tell if tell is not None else (_to_stderr if sys.stderr.isatty() else _to_nobody)

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.seconds + self.lent - self.spent)

    def tell(self, what: str) -> None:
        """One line of progress, with the time spent and allowed."""
        self._tell(f"[{self.spent:5.1f} of {self.seconds:.0f} s] {what}")

    @contextmanager
    def at_most(self, seconds: float) -> Generator[None]:
        """Raise OutOfTime in the body once `seconds` have passed, or the time of an `at_most` around it is over.

        Interrupts code that does not look at the clock, such as a compiler, by a timer signal; where there is none (other
        threads, Windows) the body runs to its end.
        """
        usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if not usable:
            yield
            return

        def ring(*_: Any) -> None:
            if not _shields:  # it rings again
                raise OutOfTime

        # A user's own alarm goes on afterwards, late if it would have rung meanwhile.
        theirs = (0.0, 0.0) if self._deadlines else signal.getitimer(signal.ITIMER_REAL)
        began = time.monotonic()
        before = signal.signal(signal.SIGALRM, ring)
        hook, sys.unraisablehook = sys.unraisablehook, _quiet(sys.unraisablehook)
        self._deadlines.append(min([time.monotonic() + seconds, *self._deadlines]))
        try:
            self._arm()
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._deadlines.pop()
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook
            if self._deadlines:
                self._arm()
            elif theirs[0]:
                signal.setitimer(signal.ITIMER_REAL, max(theirs[0] - (time.monotonic() - began), 1e-6), theirs[1])

    def _arm(self) -> None:
        # Again and again: a compiler may catch everything, and what is raised while an object is freed is lost.
        signal.setitimer(signal.ITIMER_REAL, max(self._deadlines[-1] - time.monotonic(), 1e-3), _AGAIN_S)


def _quiet(hook: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The hook, but for what was raised while an object was freed: it will be raised again, and is no news to anybody."""

    def said(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, OutOfTime):
            hook(unraisable)

    return said


def _to_stderr(line: str) -> None:
    print(f"lanewise: {line}", file=sys.stderr, flush=True)


def _to_nobody(line: str) -> None:
    pass
