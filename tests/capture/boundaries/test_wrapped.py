"""A decorated function stays what it was, and is recorded while it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lanewise.capture.boundaries.wrapped import wrapped


class Around:
    def __init__(self) -> None:
        self.inside = False
        self.entered = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.inside, self.entered = True, self.entered + 1
        try:
            yield
        finally:
            self.inside = False


def test_a_coroutine_is_inside_until_it_ends() -> None:
    around = Around()

    async def work(x: int) -> int:
        await asyncio.sleep(0)
        assert around.inside
        return x + 1

    made = wrapped(work, around)
    assert inspect.iscoroutinefunction(made)
    assert made.__name__ == "work"
    call = made(2)
    assert not around.inside
    assert asyncio.run(call) == 3
    assert not around.inside


def talk(around: Around) -> Any:
    def dialogue() -> Generator[Any, Any, str]:
        got = yield "first"
        assert around.inside
        try:
            yield got
        except KeyError:
            yield "caught"
        return "end"

    return dialogue


def test_a_generator_is_talked_to_as_before() -> None:
    around = Around()
    made = wrapped(talk(around), around)
    assert inspect.isgeneratorfunction(made)
    running = made()
    assert not around.inside
    assert next(running) == "first"
    assert around.inside
    assert running.send("sent") == "sent"
    assert running.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration) as ended:
        next(running)
    assert ended.value.value == "end"
    assert not around.inside
    stopped = made()
    next(stopped)
    stopped.close()
    assert not around.inside


def test_an_async_generator_is_talked_to_as_before() -> None:
    around = Around()
    closed: list[str] = []

    async def dialogue() -> AsyncGenerator[Any, Any]:
        try:
            got = yield "first"
            assert around.inside
            try:
                yield got
            except KeyError:
                yield "caught"
        finally:
            closed.append("closed")

    made = wrapped(dialogue, around)
    assert inspect.isasyncgenfunction(made)

    async def main() -> None:
        running = made()
        assert await anext(running) == "first"
        assert await running.asend("sent") == "sent"
        assert await running.athrow(KeyError()) == "caught"
        assert [item async for item in running] == []
        assert not around.inside
        stopped = made()
        await anext(stopped)
        assert around.inside
        await stopped.aclose()
        assert not around.inside
        raising = made()
        await anext(raising)
        with pytest.raises(ValueError, match="ours"):
            await raising.athrow(ValueError("ours"))

    asyncio.run(main())
    assert closed == ["closed"] * 3


def test_what_a_coroutine_or_generator_does_is_in_the_recording(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    from lanewise.capture.recorder import record
    from lanewise.trace.schema import Kind

    def made(name: str) -> Any:
        return record(out=tmp_path, name=name, whole=True)

    @made("coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0)
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))

    @made("generator")
    def generator() -> Any:
        yield 1
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))
        yield 2

    @made("stream")
    async def stream() -> Any:
        yield 1
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))
        yield 2

    async def drained() -> list[int]:
        return [item async for item in stream()]

    asyncio.run(coroutine())
    assert list(generator()) == [1, 2]
    assert asyncio.run(drained()) == [1, 2]
    for function in (coroutine, generator, stream):
        trace = function.recorder.trace  # type: ignore[attr-defined]
        assert "aten::mm" in {trace.name_of(event) for event in trace.of(Kind.OPERATOR).tolist()}
