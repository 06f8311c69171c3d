"""A slow and a fast piece of a program for rules, which their documentation shows."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

__all__ = ["Snippet", "snippets"]


class Snippet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two ways to the same `y`, after what is `given`; whether the finding shows in a recording without a GPU."""

    given: str
    slow: str
    fast: str
    on_cpu: bool = False


@cache
def snippets() -> dict[str, Snippet]:
    """By code of the rule; not every rule has one."""
    text = (files("lanewise.diagnose.rules") / "snippets.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Snippet])
