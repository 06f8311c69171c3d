"""Finds the end of JSON values and the members of objects without building them, in text that may be damaged.

Used where a decoder cannot be: on the head of a file whose events fill the rest, and on rows that no decoder accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["WHITESPACE", "Member", "end_of_value", "members", "skip_space"]

WHITESPACE = b" \t\r\n"

# Raw control characters are let through: Kineto has written them inside names (pytorch#130622).
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(_STRING + rb'|[\[\]{}"]', re.DOTALL)
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}{\[\":]+")
_SPACE = re.compile(rb"\s*")


class Member(NamedTuple):
    """One member of an object. `start:end` is its value; `end` is -1 if the text stops before the value does."""

    key: str
    start: int
    end: int


def skip_space(text: bytes, at: int) -> int:
    """First position at or after `at` that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def end_of_value(text: bytes, at: int) -> int:
    """Position after the value that starts at `at`; -1 if the text stops before the value does, or has none there."""
    opening = text[at : at + 1]
    if opening == b'"':
        found = _WHOLE_STRING.match(text, at)
        return found.end() if found else -1
    if opening not in (b"{", b"["):
        found = _SCALAR.match(text, at)
        return found.end() if found else -1
    depth = 0
    for token in _TOKEN.finditer(text, at):
        first = text[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
        elif token.end() == token.start() + 1:
            return -1  # a quote that nothing closes
    return -1


def members(text: bytes, at: int, until: str = "") -> Iterator[Member]:
    """Members of the object whose first key, comma or closing brace is next at `at`, the last one that of the name `until`:
    where its value ends, which may be far away, is not looked for.

    Stops after a member that is cut off, and silently where the text is no object any more; `skip_space` at the end of
    the last member tells which character stopped it.
    """
    while True:
        at = skip_space(text, at)
        if text[at : at + 1] == b",":
            at = skip_space(text, at + 1)
        key = _WHOLE_STRING.match(text, at)
        if key is None:
            return
        at = skip_space(text, key.end())
        if text[at : at + 1] != b":":
            return
        start = skip_space(text, at + 1)
        name = key.group()[1:-1].decode("utf-8", "replace")
        end = -1 if name == until else end_of_value(text, start)
        # A scalar at the very end may go on in text that has not been read yet.
        if end == len(text) and text[start : start + 1] not in (b"{", b"[", b'"'):
            end = -1
        yield Member(name, start, end)
        if end < 0:
            return
        at = end
