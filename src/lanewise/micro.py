"""Microseconds with their sign.

Texts are made with `us`, which every encoding carries, and which is searched for and read by programs; where a person
reads, `3.5 us` becomes `3.5 µs`, which is as wide.
"""

from __future__ import annotations

import re

__all__ = ["with_micro"]

# A line may end between a number and its unit, and with it the codes of a style.
_US = re.compile(r"(\d(?: |\n|\x1b\[[0-9;]*m)+)us\b")


def with_micro(text: str, encoding: str = "utf-8") -> str:
    """A text with the sign, as far as the encoding that it is shown in has it."""
    try:
        "µ".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return text
    return _US.sub(r"\1µs", text)
