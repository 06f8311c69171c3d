"""Questions about a call and about what a fast path stands on, written out one after the other as a function.

A loop over what is asked takes three times as long as the same lines written out, and every further call adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["NO", "OTHER", "Questions", "function"]

OTHER: Any = object()
"""What a function says where something is not as it has to be."""
NO = "return OTHER"
"""The line that says so."""


class Questions(NamedTuple):
    """Lines that go on only where all is as it has to be, and what their names stand for."""

    lines: Sequence[str]
    names: Mapping[str, Any]


def function(signature: str, asked: Sequence[Questions], then: Sequence[str], **names: Any) -> Callable[..., Any]:
    """A function that asks, and then does something.

    Args:
        signature: its arguments. then: its last lines. names: what those name.
    """
    bound = {"OTHER": OTHER, **names}
    for one in asked:
        bound |= one.names
    lines = [line for one in asked for line in one.lines]
    return _maker(signature, (*lines, *then), tuple(bound))(*bound.values())


@lru_cache(maxsize=256)
def _maker(signature: str, lines: tuple[str, ...], names: tuple[str, ...]) -> Callable[..., Callable[..., Any]]:
    """What makes the function of these lines, for values of these names: they are read from it faster than from globals."""
    body = "\n".join(f"        {line}" for line in lines)
    found: dict[str, Any] = {}
    exec(f"def of({', '.join(names)}):\n    def written({signature}):\n{body}\n    return written", found)
    return found["of"]
