"""A function with a context around what it does, and of the same kind as before: what a coroutine or a generator does
comes after the call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["wrapped"]

_Around = Callable[[], AbstractContextManager[Any]]


def wrapped(target: Callable[..., Any], around: _Around) -> Any:
    """`target` inside the context that `around` makes at each call.

    A coroutine or a generator enters it when it first runs and leaves it when it ends or is closed.
    """
    if inspect.isasyncgenfunction(target):
        recorded = _async_generator(target, around)
    elif inspect.iscoroutinefunction(target):
        recorded = _coroutine(target, around)
    elif inspect.isgeneratorfunction(target):
        recorded = _generator(target, around)
    else:
        recorded = _function(target, around)
    return functools.wraps(target)(recorded)


def _function(target: Callable[..., Any], around: _Around) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with around():
            return target(*args, **kwargs)

    return recorded


def _generator(target: Callable[..., Any], around: _Around) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with around():
            return (yield from target(*args, **kwargs))

    return recorded


def _coroutine(target: Callable[..., Any], around: _Around) -> Callable[..., Any]:
    async def recorded(*args: Any, **kwargs: Any) -> Any:
        with around():
            return await target(*args, **kwargs)

    return recorded


def _async_generator(target: Callable[..., Any], around: _Around) -> Callable[..., Any]:
    async def recorded(*args: Any, **kwargs: Any) -> Any:
        with around():
            inner = target(*args, **kwargs)
            step = inner.__anext__()
            while True:
                try:
                    value = await step
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
                else:
                    step = inner.asend(sent)

    return recorded
