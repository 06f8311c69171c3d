"""Which of some dictionaries have been changed since they were last looked at, at next to no cost where none was.

Modules keep everything in dictionaries: modes, attributes, parameters, parts, hooks. A guard that compared all of them in
every call would cost more than most calls save. CPython knows when a dictionary changes: since 3.12 it tells watchers
(`PyDict_Watch`), before that every dictionary has a version. Where there is neither, all are looked at each time.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Iterable, Sequence, Set
from typing import Any, NamedTuple, Protocol

import numpy as np

from lanewise.fix.guard.memory import Words

__all__ = ["Changed", "Telltale", "changed_among"]


class Telltale(NamedTuple):
    """What some dictionaries are seen by, without looking at them.

    Attributes:
        unchanged: is emptied before one is changed, if that is told. places: addresses of words that change if it is not.
    """

    unchanged: list[bool]
    places: list[int]


class Changed(Protocol):
    """Knows which dictionaries were changed.

    It holds the dictionaries themselves: none of them is freed, and its address given to another, while it is asked about.
    """

    def telltale(self, but: Set[int]) -> Telltale | None:
        """What changes with all but those of some numbers; None where nothing does."""
        ...

    def none(self, but: Set[int] = ...) -> bool:
        """Whether no dictionary has been changed, but for those of some numbers."""
        ...

    def which(self) -> Iterable[int]:
        """Numbers of those that have been, or may have been."""
        ...

    def settle(self, at: int) -> None:
        """The dictionary of this number counts as unchanged from now on."""
        ...


def changed_among(dicts: Sequence[dict[Any, Any]]) -> Changed:
    """What tells which of these are changed from now on."""
    if (watcher := _watcher()) is not None:
        return _Watched(dicts, watcher)
    return _Versioned(dicts) if _has_versions() else _Unknown(dicts)


class _Unknown:
    """Any may have been changed."""

    def __init__(self, dicts: Sequence[dict[Any, Any]]) -> None:
        self._dicts = dicts

    def telltale(self, but: Set[int]) -> Telltale | None:
        return None

    def none(self, but: Set[int] = frozenset()) -> bool:
        return not self._dicts

    def which(self) -> Iterable[int]:
        return range(len(self._dicts))

    def settle(self, at: int) -> None:
        pass


_VERSION_AT = 24
"""Offset of `ma_version_tag` in a dictionary of CPython 3.11: after count, type and size."""


class _Versioned:
    """By the version of each, all read at once."""

    def __init__(self, dicts: Sequence[dict[Any, Any]]) -> None:
        self._dicts = dicts
        self._words = Words([id(one) + _VERSION_AT for one in dicts])
        self._seen: Any = self._words.now()

    def telltale(self, but: Set[int]) -> Telltale | None:
        return Telltale([True], [place for at, place in enumerate(self._words.places) if at not in but])

    def none(self, but: Set[int] = frozenset()) -> bool:
        return self._words.same() or (bool(but) and set(self.which()) <= but)

    def which(self) -> Iterable[int]:
        return np.flatnonzero(self._words.now() != self._seen).tolist()

    def settle(self, at: int) -> None:
        self._seen[at] = self._words.now()[at]
        self._words.seen = self._seen.tobytes()


def _has_versions() -> bool:
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11) or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    tried: dict[str, int] = {"a": 1}
    versions = _Versioned([tried])
    still = versions.none()
    tried["a"] = 2
    return still and not versions.none()


class _Noted:
    """What a watcher is told of some dictionaries.

    Attributes:
        touched: numbers of those that were changed. apart: of those that do not count. unchanged: holds something until
            one that counts is changed.
    """

    def __init__(self) -> None:
        self.touched: set[int] = set()
        self.apart: Set[int] = frozenset()
        self.unchanged = [True]

    def note(self, at: int) -> None:
        self.touched.add(at)
        if at not in self.apart:
            self.unchanged.clear()


class _Watched:
    """By a watcher, which is told of every change before it is made."""

    def __init__(self, dicts: Sequence[dict[Any, Any]], watcher: int) -> None:
        self._dicts, self._watcher = dicts, watcher
        # Others hold it, too: what is told of a change must not keep the dictionaries.
        self._noted = _Noted()
        for at, one in enumerate(dicts):
            _told.setdefault(id(one), []).append((self._noted, at))
            _api("PyDict_Watch", ctypes.c_int(watcher), ctypes.py_object(one))

    def telltale(self, but: Set[int]) -> Telltale | None:
        noted = self._noted
        if but != noted.apart:
            # Who asked before relies on others being counted.
            noted.unchanged.clear()
            noted.apart = frozenset(but)
        if not noted.unchanged:
            noted.unchanged = [True]
        return Telltale(noted.unchanged, [])

    def none(self, but: Set[int] = frozenset()) -> bool:
        return self._noted.touched <= but

    def which(self) -> Iterable[int]:
        return sorted(self._noted.touched)

    def settle(self, at: int) -> None:
        self._noted.touched.discard(at)

    def __del__(self) -> None:
        # The dictionaries are freed after this: none that is watched ever is.
        for one in self._dicts if _watcher() is not None else ():
            left = [(noted, at) for noted, at in _told.get(id(one), []) if noted is not self._noted]
            if left:
                _told[id(one)] = left
            else:
                _told.pop(id(one), None)
                _api("PyDict_Unwatch", ctypes.c_int(self._watcher), ctypes.py_object(one))


_told: dict[int, list[tuple[_Noted, int]]] = {}
"""By address of a dictionary: who is told of its changes, and under which number."""

_watchers: list[tuple[int, Any]] = []
"""The watcher of this process and the function that it calls; -1 where there can be none."""


def _watcher() -> int | None:
    if not _watchers:
        _watchers.append(_new_watcher())
        if not _tells():
            _watchers[0] = (-1, _watchers[0][1])
    number = _watchers[0][0]
    return None if number < 0 else number


def _tells() -> bool:
    """Whether a change of an object's attribute is told: versions of Python that keep them in the object do not always."""

    class Object:
        def __init__(self) -> None:
            self.value = 0

    number, tried = _watchers[0][0], Object()
    if number < 0:
        return False
    seen = _Watched([vars(tried)], number)
    tried.value = 1
    return not seen.none()


def _new_watcher() -> tuple[int, Any]:
    def tell(event: int, where: int, key: int, value: int) -> int:
        for noted, at in _told.get(where, ()):
            noted.note(at)
        return 0

    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    called = kind(tell)
    try:
        number = int(_api("PyDict_AddWatcher", called))
    except (AttributeError, RuntimeError):  # another Python; or eight others watch
        return -1, None

    def end() -> None:
        """Before the function that it calls is gone."""
        _watchers[0] = (-1, called)
        _api("PyDict_ClearWatcher", ctypes.c_int(number))

    atexit.register(end)
    return number, called


def _api(name: str, *args: Any) -> Any:
    return getattr(ctypes.pythonapi, name)(*args)
