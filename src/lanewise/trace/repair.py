"""The tolerant path: rows out of text that the strict decoder refuses, each mended on its own or given up and counted.

Damaged text is cut where a row can only start. So an unescaped quote costs at most the row that it is in, and the next
row is good again. Nothing here guesses at values: a value that cannot be read becomes missing.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from lanewise.trace.decode.rows import Row, lenient
from lanewise.trace.reading import Reading
from lanewise.trace.scan import WHITESPACE, end_of_value, skip_space

__all__ = ["ROW_END", "Salvage", "plain_value", "salvage"]

_KEY = rb'"(?:ph|cat|name|pid|tid|ts|dur|id|args|s|bp|tts|tdur|id2|cname|scope)"\s*:'

ROW_END = re.compile(rb"\}(\s*,\s*)\{\s*" + _KEY)
"""From the closing brace of one row to the first key of the next; group 1 is what separates them."""

_ROW_START = re.compile(rb"(?:\A|[,}])\s*(\{\s*" + _KEY + rb")")
_END_OF_LIST = re.compile(rb"\}(?=\s*\])")
_SEPARATORS = WHITESPACE + b","
_MOST_JOINED = 8
"""A row may contain objects that look like the start of a row; this many of them are tolerated in a damaged one."""

_NEARBY = 8192
"""How far the end of an undamaged row is looked for beyond the next start, at least."""


class Salvage(NamedTuple):
    """What was saved: rows, and the args of each as plain values for the phases that need them."""

    rows: list[Row]
    args: list[dict[str, Any]]
    leftover: bytes
    """A last row that the text cuts off, to be read with the text that follows."""
    after: bytes | None
    """What follows the list of rows, if the list ends in this text."""


def salvage(text: bytes, reading: Reading, *, at_end: bool) -> Salvage:
    """Rows of a damaged part of the list of events.

    Args:
        text: rows separated by commas; may go on beyond the closing bracket of the list.
        reading: where mended and lost rows are counted.
        at_end: whether the file ends with this text.
    """
    rows: list[Row] = []
    args: list[dict[str, Any]] = []
    starts = [found.start(1) for found in _ROW_START.finditer(text)]
    at = 0
    while True:
        at = _skip(text, at)
        if at == len(text):
            return Salvage(rows, args, b"", None)
        if text[at : at + 1] == b"]":
            return Salvage(rows, args, b"", text[at + 1 :])
        following = starts[bisect_right(starts, at) :][: _MOST_JOINED - 1]
        resume = following[0] if following else len(text)
        if text[at : at + 1] == b"{":
            stops = [*following, len(text)] if len(following) < _MOST_JOINED - 1 else following
            found = _row_at(text, at, stops, reading)
            if found is not None:
                row, values, at = found
                if row is not None:
                    rows.append(row)
                    args.append(values)
                continue
        if following:
            reading.lose("row that cannot be read", _sample(text[at:resume]))
        elif not at_end:
            return Salvage(rows, args, text[at:], None)
        else:
            reading.truncated = True
            reading.lose("last row is cut off", _sample(text[at:]))
        at = resume


def _skip(text: bytes, at: int) -> int:
    at = skip_space(text, at)
    while text[at : at + 1] == b",":
        at = skip_space(text, at + 1)
    return at


def _row_at(text: bytes, at: int, stops: list[int], reading: Reading) -> tuple[Row | None, dict[str, Any], int] | None:
    """The row at `at`, its args and where it ends; None if no reading of it ends at one of `stops` or before."""
    for stop in (at + max(_NEARBY, 64 * (stops[0] - at)), *stops):
        piece = text[at:stop]
        end = end_of_value(piece, 0)
        if end < 0 and stop not in stops:
            continue
        bodies = [piece[:end]] if end >= 0 else [piece.rstrip(_SEPARATORS)]
        if end < 0 and stop == len(text):
            bodies += [piece[: found.end()] for found in _END_OF_LIST.finditer(piece)][:_MOST_JOINED]
        for body in bodies:
            found = _read(body, reading, alone=stop <= stops[0])
            if found is not None:
                return (*found, at + len(body))
        if end >= 0 and stop in stops:
            return None
    return None


_decode_row = msgspec.json.Decoder(Row).decode


def _read(body: bytes, reading: Reading, *, alone: bool) -> tuple[Row | None, dict[str, Any]] | None:
    """A row and its args from the text of one object, mended if need be; None if it cannot be read.

    `alone`: no other row can have started in it. Otherwise an unclosed text would be closed in the next row.
    """
    try:
        row = _decode_row(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        if row.ph not in ("C", "M"):
            return row, {}
    found = plain_value(body, quotes=alone)
    if found is None:
        return None
    value, reasons = found
    if not isinstance(value, dict):
        return None
    for reason in reasons:
        reading.repair(reason, _sample(body))
    return lenient(value, reading), _args(value)


def _args(value: dict[str, Any]) -> dict[str, Any]:
    args = value.get("args")
    return args if isinstance(args, dict) else {}


# -- mending one value -------------------------------------------------------------------------------------------------

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\n|\r|\t")
_IN_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BAD_ESCAPE = re.compile(rb'\\(?:u(?![0-9a-fA-F]{4})|[^"\\/bfnrtu])', re.DOTALL)
_NO_NUMBER = re.compile(
    rb'("[^"\\]*(?:\\.[^"\\]*)*")|[-+]?\b(?:nan|inf(?:inity)?|n/a|none|undefined)\b(?:\([^)]*\))?',
    re.IGNORECASE | re.DOTALL,
)
_TRAILING_COMMA = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|,(?=\s*[}\]])', re.DOTALL)
_NAME = re.compile(rb'("name"\s*:\s*")(.*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)', re.DOTALL)
_LONELY_QUOTE = re.compile(rb'(?<!\\)((?:\\\\)*)"')
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ARGS = re.compile(rb'"args"\s*:\s*')


def plain_value(body: bytes, *, quotes: bool = True) -> tuple[Any, list[str]] | None:
    """Any JSON value from text that may be damaged, with the reasons for mending it; None if it cannot be read.

    `quotes`: whether names may be mended whose quotes are not escaped.
    """
    for text, reasons in _mended(body, _MENDERS if quotes else _MENDERS[:-1]):
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        except RecursionError:
            return _without_args(body)
        else:
            return value, reasons
        try:
            # Takes raw control characters, NaN and infinite numbers, unpaired surrogates.
            value = json.loads(text.decode("utf-8", "replace"), strict=False)
        except ValueError:
            continue
        except RecursionError:
            return _without_args(body)
        return _clean(value), [*_oddities(text), *reasons]
    return None


def _mended(body: bytes, menders: tuple[_Mender, ...]) -> Iterator[tuple[bytes, list[str]]]:
    """The text, then the text with one more kind of damage mended at a time."""
    yield body, []
    reasons: list[str] = []
    for mend, reason in menders:
        mended = mend(body)
        if mended != body:
            body = mended
            reasons = [*reasons, reason]
            yield body, reasons


_Mender = tuple[Callable[[bytes], bytes], str]

_MENDERS: tuple[_Mender, ...] = (
    (lambda text: _BAD_ESCAPE.sub(lambda found: b"\\" + found[0], text), "bad backslash"),
    (lambda text: _NO_NUMBER.sub(lambda found: found[1] or b"null", text), "value is no number"),
    (lambda text: _TRAILING_COMMA.sub(lambda found: found[1] or b"", text), "trailing comma"),
    (
        lambda text: _NAME.sub(lambda found: found[1] + _LONELY_QUOTE.sub(rb'\1\\"', found[2]) + found[3], text),
        "unescaped quote",
    ),
)


def _oddities(text: bytes) -> Iterator[str]:
    """What the standard library's parser let pass and the strict one did not."""
    found = False
    if any(_CONTROL.search(string[0]) for string in _IN_STRINGS.finditer(text)):
        found = True
        yield "control character in a text"
    try:
        text.decode()
    except UnicodeDecodeError:
        found = True
        yield "invalid UTF-8"
    if not found:
        yield "value outside JSON"


def _clean(value: Any) -> Any:
    """The same value without control characters and unpaired surrogates in its texts."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", "".join(c if c >= " " else " " for c in value))
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _without_args(body: bytes) -> tuple[Any, list[str]] | None:
    """A row whose args are nested too deeply for any decoder, without them."""
    found = _ARGS.search(body)
    if found is None:
        return None
    end = end_of_value(body, found.end())
    if end < 0:
        return None
    try:
        return msgspec.json.decode(body[: found.end()] + b"{}" + body[end:]), ["args are nested too deeply"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _sample(text: bytes) -> str:
    return text[:200].decode("utf-8", "replace")
