"""Places in a Python program from which a walk of frames is compared with Python's own account.

Imports nothing of ours, so that the walk can be tried on an interpreter that has neither torch nor the rest of lanewise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["STANDS", "Stand", "Walk", "first_difference"]

Walk = Callable[[], list[tuple[Any, int, Any]]]
"""(code, offset of the instruction in bytes, module or None) of every frame, innermost first."""

Seen = tuple[list[tuple[Any, int, Any]], list[tuple[Any, int]]]
"""What the walk sees and what Python says."""

Stand = Callable[[Walk], Seen]

_COMPARED = 50
"""Innermost frames compared: a walk leaves out the middle of stacks deeper than 128, where a program may well start us."""


def first_difference(walk: Walk) -> str:
    """Walks in functions, generators, coroutines, handlers and through C. "" if all agree, else what does not."""
    for name, stand in STANDS.items():
        try:
            seen, real = stand(walk)
        except Exception as error:
            return f"the walk of Python frames failed in {name} ({type(error).__name__}: {error})"
        if [(code, offset) for code, offset, _ in seen[:_COMPARED]] != real[:_COMPARED]:
            return f"the walk of Python frames is wrong in {name}"
    return ""


def _compare(walk: Walk) -> Seen:
    """Of the frames around this function."""
    seen = walk()
    real: list[tuple[Any, int]] = []
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        real.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    # The innermost frames moved between the two: `walk` is one more, and this function stands at another instruction.
    inner = next((at for at, (code, _, _) in enumerate(seen) if code is _compare.__code__), 0)
    return seen[inner + 1 :], real[1:]


def _in_function(walk: Walk) -> Seen:
    return _compare(walk)


def _in_recursion(walk: Walk, depth: int = 30) -> Seen:
    return _compare(walk) if depth == 0 else _in_recursion(walk, depth - 1)


def _in_generator(walk: Walk) -> Seen:
    def outer() -> Generator[Seen]:
        yield from inner()

    def inner() -> Generator[Seen]:
        yield _compare(walk)

    return next(outer())


def _in_thrown_generator(walk: Walk) -> Seen:
    def waits() -> Generator[Any]:
        try:
            yield None
        except ValueError:
            yield _compare(walk)

    def passes_on() -> Generator[Any]:
        yield from waits()

    generator = passes_on()
    next(generator)
    return generator.throw(ValueError())


def _in_comprehension(walk: Walk) -> Seen:
    kept = [_compare(walk) for _ in range(1)]
    return kept[0]


def _in_class_body(walk: Walk) -> Seen:
    class Body:
        kept = _compare(walk)

    return Body.kept


def _in_coroutine(walk: Walk) -> Seen:
    async def inner() -> Seen:
        return _compare(walk)

    async def outer() -> Seen:
        return await inner()

    # Driven by hand: a program may have an event loop of its own running.
    coroutine = outer()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the coroutine did not finish")


def _in_handler(walk: Walk) -> Seen:
    try:
        raise ValueError
    except ValueError:
        return _compare(walk)
    finally:
        _compare(walk)


def _through_c(walk: Walk) -> Seen:
    kept: list[Seen] = []

    def key(_: int) -> int:
        kept.append(_compare(walk))
        return 0

    # Python called from C: `sorted` calls the key.
    sorted([0], key=key)
    return kept[0]


def _in_method_from_c(walk: Walk) -> Seen:
    kept: list[Seen] = []

    class Base:
        def __init__(self, function: Callable[[], Seen]) -> None:
            kept.append(function())

    class Derived(Base):
        def __init__(self, function: Callable[[], Seen]) -> None:
            super().__init__(function)

    # Constructors, wrappers of methods and functions with any arguments are called in ways of their own.
    def anything(*words: Any, **named: Any) -> Seen:
        return _compare(*words, **named)

    Derived(lambda: anything(walk=walk))
    return kept[0]


def _while_let_go(walk: Walk) -> Seen:
    kept: list[Seen] = []

    class Dies:
        def __del__(self) -> None:
            kept.append(_compare(walk))

    dies = Dies()
    del dies
    return kept[0]


STANDS: dict[str, Stand] = {
    "a function": _in_function,
    "recursion": _in_recursion,
    "a generator": _in_generator,
    "a generator that was thrown into": _in_thrown_generator,
    "a comprehension": _in_comprehension,
    "a class body": _in_class_body,
    "a coroutine": _in_coroutine,
    "an exception handler": _in_handler,
    "a call through C": _through_c,
    "a constructor": _in_method_from_c,
    "a finalizer": _while_let_go,
}
"""By name."""
