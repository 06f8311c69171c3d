"""Output that no encoding can stop: what standard output cannot carry is replaced, character by character."""

from __future__ import annotations

import codecs
import io
import re
import sys
from typing import Any, TextIO

__all__ = ["WithMicro", "as_given", "replace_what_cannot_be_encoded"]

_HANDLER = "lanewise.plain"
# One for one, so that columns stay under each other.
_PLAIN = str.maketrans("…·•→←−–—‘’“”×µ│├└┌┐┘┬┴┼─━╸╺█▓▒░✓✗±≥≤", "~-*><---''\"\"xu|+`++++++----#=:.+x~><")
_given: dict[io.TextIOWrapper, str | None] = {}


def replace_what_cannot_be_encoded() -> None:
    """From here on nothing that is printed raises UnicodeEncodeError, in any locale and for any file name."""
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            _given.setdefault(stream, stream.errors)
            stream.reconfigure(errors=_HANDLER)


def as_given() -> None:
    """Undo that: a program that we run finds its streams as Python makes them."""
    while _given:
        stream, errors = _given.popitem()
        stream.reconfigure(errors=errors)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


class WithMicro:
    """A stream that writes microseconds with their sign, `3.5 µs`, which is as wide as `us`.

    Where the encoding has no such sign, `replace_what_cannot_be_encoded` makes it `us` again.
    """

    _MICRO = re.compile(r"(?<=\d )us\b")

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; what a number and its unit are split over is left as it is."""
        return self._stream.write(self._MICRO.sub("µs", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
