"""Mends JSON text: what profilers have been seen to write that no strict parser accepts.

Each mender repairs one kind of damage, counts it and keeps a sample. They are applied one after the other until the
text can be decoded, to a whole chunk first and, where that is not enough, to single rows. All take time linear in the
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from lanewise.trace.file.scan import end_of_value
from lanewise.trace.reading_losses import Reading

__all__ = ["Mended", "mended", "plain_value"]

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'


class Mended(NamedTuple):
    """A text and what was mended in it: reason, how often, a sample of the first."""

    text: bytes
    repairs: tuple[tuple[str, int, bytes], ...]

    def count_in(self, reading: Reading) -> None:
        """Count the repairs."""
        for reason, count, sample in self.repairs:
            reading.repair(reason, sample.decode("utf-8", "replace"), count)


def mended(text: bytes) -> Iterator[Mended]:
    """The text as it is, then with one more kind of damage mended at a time."""
    current = Mended(text, ())
    yield current
    for reason, mend in _MENDERS:
        changed, count, sample = mend(current.text)
        if count:
            current = Mended(changed, (*current.repairs, (reason, count, sample)))
            yield current


def plain_value(text: bytes) -> tuple[Any, Mended] | None:
    """Any JSON value from text that may be damaged, and what was mended; None if it cannot be read."""
    for candidate in mended(text):
        try:
            return msgspec.json.decode(candidate.text), candidate
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        except RecursionError:
            return _without_args(text)
        try:  # takes numbers of any size
            value = json.loads(candidate.text, parse_constant=_no_constant)
        except ValueError:
            continue
        except RecursionError:
            return _without_args(text)
        return value, Mended(candidate.text, (*candidate.repairs, ("value outside JSON", 1, text[:100])))
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_ARGS = re.compile(rb'"args"\s*:\s*')


def _without_args(text: bytes) -> tuple[Any, Mended] | None:
    """A row whose args are nested too deeply for any decoder, without them."""
    found = _ARGS.search(text)
    end = end_of_value(text, found.end()) if found else -1
    if found is None or end < 0:
        return None
    rest = text[: found.end()] + b"{}" + text[end:]
    try:
        return msgspec.json.decode(rest), Mended(rest, (("args are nested too deeply", 1, text[:100]),))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# -- the menders: text -> text, how often, a sample --------------------------------------------------------------------

_Result = tuple[bytes, int, bytes]


def _substitute(pattern: re.Pattern[bytes], replace: Callable[[re.Match[bytes]], bytes | None], text: bytes) -> _Result:
    """Replace matches, except where `replace` gives None."""
    count, first = 0, 0

    def each(found: re.Match[bytes]) -> bytes:
        nonlocal count, first
        replacement = replace(found)
        if replacement is None:
            return found[0]
        first = found.start() if count == 0 else first
        count += 1
        return replacement

    changed = pattern.sub(each, text)
    return changed, count, text[max(0, first - 60) : first + 60]


def _utf8(text: bytes) -> _Result:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        changed = text.decode("utf-8", "replace")
        count = changed.count("\ufffd") - text.count("\ufffd".encode())
        return changed.encode(), count, text[max(0, error.start - 60) : error.start + 60]
    return text, 0, b""


_STRINGS = re.compile(_STRING, re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NO_SPACE = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TO_SPACE = bytes.maketrans(bytes(range(0x20)), b" " * 0x20)


def _control(text: bytes) -> _Result:
    """Every control character becomes a space: outside of texts the allowed ones mean nothing else."""
    inside = [found[0] for found in _STRINGS.finditer(text) if _CONTROL.search(found[0])]
    if not inside and not _NO_SPACE.search(text):
        return text, 0, b""
    return text.translate(_TO_SPACE), max(len(inside), 1), inside[0][:120] if inside else b""


# Every escape that is one matches a longer alternative, so that the last finds only backslashes that escape nothing.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb'|u[0-9a-fA-F]{4}|["\\/bfnrt]|)'
)


def _backslash(text: bytes) -> _Result:
    return _substitute(_ESCAPE, lambda found: b"\\\\" if found[0] == b"\\" else None, text)


def _surrogate(text: bytes) -> _Result:
    return _substitute(_ESCAPE, lambda found: b"\\ufffd" if found["lone"] else None, text)


_NO_NUMBER = re.compile(
    rb"(" + _STRING + rb")|[-+]?\b(?:nan|inf(?:inity)?|n/a|none|undefined)\b(?:\([^)]{0,20}\))?",
    re.IGNORECASE | re.DOTALL,
)


def _no_number(text: bytes) -> _Result:
    return _substitute(_NO_NUMBER, lambda found: None if found[1] else b"null", text)


_NO_VALUE = re.compile(rb"(" + _STRING + rb")|:(?=\s*[,}\]])", re.DOTALL)


def _no_value(text: bytes) -> _Result:
    return _substitute(_NO_VALUE, lambda found: None if found[1] else b":null", text)


_COMMA = re.compile(rb"(" + _STRING + rb")|,(?=\s*[}\]])", re.DOTALL)


def _trailing_comma(text: bytes) -> _Result:
    return _substitute(_COMMA, lambda found: None if found[1] else b"", text)


_NAME_START = re.compile(rb'"name"\s*:\s*"')
_NAME_END = re.compile(rb'"\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:|\})')
_OTHER_ROW = re.compile(rb',\s*\{\s*"\w+"\s*:')
_LONELY_QUOTE = re.compile(rb'(?<!\\)((?:\\\\)*)"')
_OPEN_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\\Z")


def _quotes(text: bytes) -> _Result:
    """Names that end where the next member begins, whatever quotes they have inside.

    One pass: after a name that nothing ends, no later one can be ended either.
    """
    parts: list[bytes] = []
    at, count, sample = 0, 0, b""
    while (start := _NAME_START.search(text, at)) and (end := _NAME_END.search(text, start.end())):
        name = text[start.end() : end.start()]
        mended_name = _LONELY_QUOTE.sub(rb'\1\\"', name) + (b"\\" if _OPEN_ESCAPE.search(name) else b"")
        if _OTHER_ROW.search(name):  # nothing ends this name in its own row
            parts.append(text[at : start.end()])
            at = start.end()
            continue
        if mended_name != name:
            count += 1
            sample = sample or name[:120]
        parts += (text[at : start.end()], mended_name)
        at = end.start()
    parts.append(text[at:])
    return (b"".join(parts), count, sample) if count else (text, 0, b"")


_MENDERS: tuple[tuple[str, Callable[[bytes], _Result]], ...] = (
    ("invalid UTF-8", _utf8),
    ("bad backslash", _backslash),
    ("unescaped quote", _quotes),
    ("value is no number", _no_number),
    ("value is missing", _no_value),
    ("control character in a text", _control),
    ("trailing comma", _trailing_comma),
    ("unpaired surrogate", _surrogate),
)
