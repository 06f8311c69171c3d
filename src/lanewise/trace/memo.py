"""Values computed once for an instance, also when two threads ask for one at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from threading import RLock
from typing import Any, Self, TypeVar, overload

__all__ = ["computed", "once"]

T = TypeVar("T")


class once(cached_property[T]):  # noqa: N801 - used like the `cached_property` that it is
    """A `cached_property` with a lock for each instance: the second thread waits for the first one's value.

    functools' own has one lock for all instances up to Python 3.11, and none since. Whoever computes holds the lock
    of what it computes and takes those of what that needs: no cycle as long as no property needs itself.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        name = self.attrname
        assert name is not None, "once decorates a method of a class"
        return computed(instance.__dict__, name, lambda: self.func(instance))


def computed(values: dict[Any, Any], key: Hashable, compute: Callable[[], T]) -> T:
    """The value of a key, computed by the first who asks for it; others wait for that."""
    if key in values:
        return values[key]
    lock = ("being computed", key)
    with values.setdefault(lock, RLock()):
        try:
            if key not in values:
                values[key] = compute()
            return values[key]
        finally:
            values.pop(lock, None)  # an instance stays picklable
