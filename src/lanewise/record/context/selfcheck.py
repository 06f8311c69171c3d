"""Checks at the start: what is known to happen must be what the collector sees."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Generator
from typing import Any

from lanewise.record.torched import torch_part

__all__ = ["check_frames", "check_operators", "cost_of_callback"]

_COMPARED = 50
"""Innermost frames compared: a walk leaves out the middle of stacks deeper than 128, where a program may well start us."""

Walk = Callable[[], list[tuple[Any, int, Any]]]


def check_frames(walk: Walk) -> str:
    """Compares a walk with Python's own account in functions, recursion, a generator, a coroutine and a handler.

    Returns "" if all agree, else what does not.
    """
    for name, stand in _STANDS.items():
        try:
            seen, real = stand(walk)
        except Exception as error:
            return f"the walk of Python frames failed in {name} ({type(error).__name__}: {error})"
        if [(code, offset) for code, offset, _ in seen[:_COMPARED]] != real[:_COMPARED]:
            return f"the walk of Python frames is wrong in {name}"
    return ""


def _compare(walk: Walk) -> tuple[list[tuple[Any, int, Any]], list[tuple[Any, int]]]:
    """What the walk sees and what Python says, of the frames around this function."""
    seen = walk()
    real: list[tuple[Any, int]] = []
    frame = inspect.currentframe()
    while frame is not None:
        real.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    # The innermost frames moved between the two: `walk` is one more, and this function stands at another instruction.
    inner = next((at for at, (code, _, _) in enumerate(seen) if code is _compare.__code__), 0)
    return seen[inner + 1 :], real[1:]


def _in_function(walk: Walk) -> Any:
    return _compare(walk)


def _in_recursion(walk: Walk, depth: int = 30) -> Any:
    return _compare(walk) if depth == 0 else _in_recursion(walk, depth - 1)


def _in_generator(walk: Walk) -> Any:
    def outer() -> Generator[Any]:
        yield from inner()

    def inner() -> Generator[Any]:
        yield _compare(walk)

    return next(outer())


def _in_coroutine(walk: Walk) -> Any:
    async def inner() -> Any:
        return _compare(walk)

    async def outer() -> Any:
        return await inner()

    # Driven by hand: a program may have an event loop of its own running.
    coroutine = outer()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise asyncio.InvalidStateError("the coroutine did not finish")


def _in_handler(walk: Walk) -> Any:
    try:
        raise ValueError
    except ValueError:
        return _compare(walk)
    finally:
        _compare(walk)


def _through_c(walk: Walk) -> Any:
    kept: list[Any] = []

    def key(_: int) -> int:
        kept.append(_compare(walk))
        return 0

    # Python called from C: `sorted` calls the key.
    sorted([0], key=key)
    return kept[0]


_STANDS: dict[str, Callable[[Walk], Any]] = {
    "a function": _in_function,
    "recursion": _in_recursion,
    "a generator": _in_generator,
    "a coroutine": _in_coroutine,
    "an exception handler": _in_handler,
    "a call through C": _through_c,
}


def check_operators(run: Callable[[Callable[[], Any]], dict[str, Any]], *, frames: bool) -> str:
    """Runs a known operator in a known function and looks for both. Returns "" or what is missing."""
    torch = torch_part()
    x = torch.zeros(2, 2)

    def known_function() -> None:
        with torch.no_grad():
            torch.mm(x, x)

    found = run(known_function)
    if "aten::mm" not in found["names"] or not any(one["callbacks"] for one in found["threads"]):
        return "a known operator did not appear"
    if frames and not any(code is known_function.__code__ for code, _ in found["sites"]):
        return "a known Python frame did not appear"
    return ""


def cost_of_callback(on: Callable[[], None], off: Callable[[], None], *, calls: int = 2000, rounds: int = 5) -> float:
    """What one small operator costs more with the collector on, ns: the smallest of a few rounds on either side."""
    torch = torch_part()
    x = torch.zeros(1)

    def measure() -> int:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            x.add_(x)
        return time.perf_counter_ns() - begin

    with torch.no_grad():
        measure()
        without: list[int] = []
        within: list[int] = []
        for _ in range(rounds):
            without.append(measure())
            on()
            try:
                within.append(measure())
            finally:
                off()
    return round(max(0.0, (min(within) - min(without)) / calls), 1)
