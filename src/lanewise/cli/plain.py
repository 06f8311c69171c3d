"""Output as a terminal and its encoding can show it: microseconds with their sign, and what cannot be encoded replaced."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Any, TextIO

from lanewise.micro import with_micro

__all__ = ["as_given", "as_shown"]

_HANDLER = "lanewise.plain"
# One for one, so that columns stay under each other.
_PLAIN = str.maketrans("…·•→←−–—‘’“”×µ│├└┌┐┘┬┴┼─━╸╺█▓▒░✓✗±≥≤", "~-*><---''\"\"xu|+`++++++----#=:.+x~><")
_given: dict[str, tuple[TextIO, str | None]] = {}


def as_shown() -> None:
    """From here on nothing that is printed raises UnicodeEncodeError, in any locale and for any file name; and a terminal
    gets `µs` for `us`, as its encoding allows: what is searched, or read by programs, stays ASCII."""
    codecs.register_error(_HANDLER, _plain)
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None or isinstance(stream, _WithMicro):
            continue
        _given[name] = stream, stream.errors
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
        if stream.isatty():
            setattr(sys, name, _WithMicro(stream))


def as_given() -> None:
    """Undo that: a program that we run finds its streams as Python makes them."""
    while _given:
        name, (stream, errors) = _given.popitem()
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


class _WithMicro:
    """A stream that writes microseconds with their sign."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; what a number and its unit are split over is left as it is."""
        return self._stream.write(with_micro(text, self._stream.encoding or "ascii"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
