"""Which thread this is: the system gives the identifier of a thread that has ended to the next one."""

from __future__ import annotations

import threading

__all__ = ["ThreadMark", "own_threads", "this_thread"]

own_threads: set[int] = set()
"""Identifiers, as the system has them, of threads that lanewise started."""


class ThreadMark:
    """Stands for one thread. It is gone as soon as its thread has ended, which a weak reference is told of there."""

    __slots__ = ("__weakref__",)


def this_thread() -> ThreadMark:
    """The same object at every call on one thread."""
    try:
        return _here.mark
    except AttributeError:
        mark = _here.mark = ThreadMark()
        return mark


class _Here(threading.local):
    mark: ThreadMark


_here = _Here()
