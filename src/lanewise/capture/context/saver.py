"""The file of a tree: written whole or not at all, early, then from time to time, and when a signal ends the program."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lanewise.capture.inside import our_modules
from lanewise.capture.thread_identity import own_threads

if TYPE_CHECKING:
    from lanewise.tree.model import Tree

__all__ = ["SAVE_EVERY_SECONDS", "Endings", "NativeEndings", "NoEndings", "Saver", "write"]

SAVE_EVERY_SECONDS = 5.0
_FIRST_SECONDS = 0.1
_SHARE = 0.02
"""Of a processor's time at most that writing may take: a tree that takes long to write is written less often."""


class Endings(Protocol):
    """Waits for what ends the program from outside."""

    def wait(self, seconds: float) -> int:
        """The number of the signal that ends the program; 0 after so many seconds, or after `wake`."""
        ...

    def wake(self) -> None:
        """Whoever waits goes on at once."""
        ...

    def let_go(self) -> None:
        """Signals do what they did before; one that has come ends the program here."""
        ...


class NoEndings:
    """Where no native code can take a signal: what ends the program ends it at once."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def wait(self, seconds: float) -> int:
        """Always 0."""
        self._woken.wait(seconds)
        return 0

    def wake(self) -> None:
        """See `Endings`."""
        self._woken.set()

    def let_go(self) -> None:
        """Nothing is held."""


class NativeEndings:
    """Signals whose default is to end the process, taken while nobody else handles them.

    Python's own handlers run on the main thread only, and only between two bytecodes: a program inside a long call
    would not end. This way it ends by the signal within a few seconds, whatever it does.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        module.endings_on()

    def wait(self, seconds: float) -> int:
        """See `Endings`."""
        # In parts: the native wait is by the wall clock, which may be set back.
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            begin = time.monotonic()
            part = min(left, 1.0)
            if number := self._module.wait_ending(part):
                return number
            if time.monotonic() - begin < part * 0.9:
                return 0
        return 0

    def wake(self) -> None:
        """See `Endings`."""
        self._module.wake_ending()

    def let_go(self) -> None:
        """See `Endings`."""
        self._module.endings_off()


class _HasTree(Protocol):
    @property
    def tree(self) -> Tree:
        """As it is now."""
        ...

    def written(self, tree: Tree, *, over: bool) -> None:
        """It has been written, for the last time if a signal ends the program now; this may take as long as writing."""
        ...

    def ended_from_outside(self, by: str) -> None:
        """A signal ends the program."""
        ...


class Saver:
    """A thread that writes what there is from time to time, so that a program that ends without us leaves a file.

    Args:
        source: what has the tree; it is not kept alive. path: of the file.
        seconds: between two writes at most, as far as they are cheap; 0 for none before the end.
        endings: what ends the program.
        log: is told of a file written because of a signal.
    """

    def __init__(
        self, source: _HasTree, path: Path, seconds: float, endings: Endings, log: Callable[[str], None]
    ) -> None:
        self._source = weakref.ref(source)
        self._path = path
        self._seconds = seconds
        self._endings = endings
        self._log = log
        self._over = False
        self._ended = threading.Event()
        self._ended.set()

    def start(self) -> None:
        """Write until `stop`, or until nobody watches any more, or the program is ended."""
        self._ended.clear()
        # Not by `threading`, which would list it among the threads of the program.
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        own_threads.add(threading.get_native_id())
        try:
            self._write_in_turn()
        finally:
            self._ended.set()

    def _write_in_turn(self) -> None:
        planned = pause = min(_FIRST_SECONDS, self._seconds) or 3600.0
        imported = False
        while True:
            number = self._endings.wait(pause)
            if self._over or (source := self._source()) is None:
                return
            begin = time.thread_time()
            if number or self._seconds:
                by = signal.Signals(number).name if number else ""
                if by:
                    source.ended_from_outside(by)
                with contextlib.suppress(Exception):
                    tree = source.tree
                    write(tree, self._path)
                    if by:
                        self._log(f"ended by {by}; {self._path.name} holds what there was")
                    source.written(tree, over=bool(by))
            del source
            if number:
                # The default holds again.
                os.kill(os.getpid(), number)
                return
            planned = min(2 * planned, self._seconds) or 3600.0
            # The first time most of it is imports.
            pause = max(planned, (time.thread_time() - begin) / _SHARE if imported else 0.0)
            imported = True

    def stop(self) -> None:
        """Write no more; waits for a file that is being written."""
        self._over = True
        self._endings.wake()
        self._ended.wait(30)


def write(tree: Tree, path: Path) -> None:
    """Complete or not at all. OSError if it cannot be written."""
    with our_modules():
        from lanewise.tree.tree_file import dumps

        data = dumps(tree)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
