"""A method of somebody else's class, with something of ours around it, and back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["watch_method"]


def watch_method(
    owner: type, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], None]:
    """Puts `around(method)` in the place of a class's own method; nothing happens where it has none of that name.

    Returns:
        What undoes it, unless somebody else has put something there since.
    """
    original = owner.__dict__.get(name)
    if original is None:
        return lambda: None
    watched = functools.wraps(original)(around(original))

    def restore() -> None:
        if owner.__dict__.get(name) is watched:
            setattr(owner, name, original)

    setattr(owner, name, watched)
    return restore
