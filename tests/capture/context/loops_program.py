"""Run by any Python: `loops_program.py LOOPS.py`. Places inside and outside of loops, as their function goes over them."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Generator
from types import CodeType
from typing import Any

spec = importlib.util.spec_from_file_location("loops", sys.argv[1])
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

Place = tuple[CodeType, int, bool]


def place(seen: list[Place], inside: bool) -> None:
    """The caller is here, inside a loop or not."""
    frame = sys._getframe(1)
    seen.append((frame.f_code, frame.f_lasti, inside))


def straight(seen: list[Place]) -> None:
    place(seen, False)
    if seen:
        place(seen, False)
    else:
        place(seen, False)


def plain_loop(seen: list[Place]) -> None:
    place(seen, False)
    for _ in range(2):
        place(seen, True)
        while len(seen) < 3:
            place(seen, True)
        if len(seen) > 100:
            continue
        place(seen, True)
    place(seen, False)


def handlers_in_a_loop(seen: list[Place]) -> None:
    for number in range(3):
        try:
            place(seen, True)
            if number:
                raise ValueError
        except ValueError:
            place(seen, True)
            continue
        finally:
            place(seen, True)
        place(seen, True)


def handlers_alone(seen: list[Place]) -> None:
    try:
        place(seen, False)
        raise ValueError
    except ValueError:
        place(seen, False)
    with open(sys.argv[1]):
        place(seen, False)


def yields(seen: list[Place]) -> None:
    def inner() -> Generator[int]:
        place(seen, False)
        for number in range(2):
            yield number
            place(seen, True)

    for _ in inner():
        place(seen, True)


def awaits(seen: list[Place]) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(2):
            await asyncio.sleep(0)
            yield number

    async def inner() -> None:
        place(seen, False)
        await asyncio.sleep(0)
        async for _ in numbers():
            place(seen, True)

    asyncio.run(inner())


FUNCTIONS: list[Callable[[list[Place]], Any]] = [
    straight,
    plain_loop,
    handlers_in_a_loop,
    handlers_alone,
    yields,
    awaits,
]
for function in FUNCTIONS:
    # Again after the interpreter has specialized it.
    for _ in range(100):
        seen: list[Place] = []
        function(seen)
        assert seen
        for code, offset, inside in seen:
            found = module.loops(code)
            covered = any(begin <= offset <= end for begin, end in zip(found[::2], found[1::2], strict=True))
            assert covered == inside, (function.__name__, offset, inside, found)
print("fine")
