"""What a mistyped word was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

__all__ = ["OneOf", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is spelled most like this one; empty if none is near."""
    from difflib import get_close_matches  # 3 ms, for an error only

    return next(iter(get_close_matches(word.lower(), list(known), n=1)), "")


class OneOf(click.Choice):  # pyright: ignore[reportMissingTypeArgument]  # generic from click 8.2 on
    """A choice that names the nearest of many when a word is none of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does it; where that fails, with the nearest choice in front of what it says."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if near := nearest(str(value), map(str, self.choices)):
                self.fail(f"did you mean {near!r}? {error.message}", param, ctx)
            raise
