"""Untrusted text made safe to print, and cut to fit."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["cell", "clean", "shorten"]

_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str, limit: int = 300) -> str:
    """Text from a trace without anything that could drive a terminal: escape sequences, controls, direction marks."""
    text = _HIDDEN.sub("?", text.replace("\n", " ").replace("\t", " "))
    text = "".join("?" if unicodedata.category(c) in {"Cf", "Cs", "Co"} else c for c in text[: limit + 1])
    return shorten(text, limit)


def shorten(text: str, limit: int) -> str:
    """Text of at most `limit` characters; cut in the middle, where long names differ least."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return text[:head] + "…" + text[len(text) - (limit - 1 - head) :]


def cell(value: object, limit: int = 64) -> str:
    """A table cell of untrusted text, indentation kept."""
    raw = str(value)
    indent = len(raw) - len(raw.lstrip(" "))
    return " " * min(indent, 24) + clean(raw.lstrip(" "), limit)
