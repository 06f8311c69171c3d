"""The last resort: rows one by one, each mended on its own or given up and counted.

Damaged text is cut where a row can only start. So an unescaped quote costs at most the row that it is in, and the next
row is good again. Nothing here guesses at values: a value that cannot be read becomes missing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, NamedTuple

import msgspec

from lanewise.trace.decode.rows import Row, lenient
from lanewise.trace.file.json_repairs import plain_value
from lanewise.trace.file.scan import WHITESPACE, end_of_value
from lanewise.trace.reading_losses import Reading

__all__ = ["ROW_END", "Salvage", "salvage"]

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


_BETWEEN = re.compile(rb"[\s,]*")


def _skip(text: bytes, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


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
            found = _read(body, reading)
            if found is not None:
                return (*found, at + len(body))
        if end >= 0 and stop in stops:
            return None
    return None


_decode_row = msgspec.json.Decoder(Row).decode


def _read(body: bytes, reading: Reading) -> tuple[Row | None, dict[str, Any]] | None:
    """A row and its args from the text of one object, mended if need be; None if it cannot be read."""
    try:
        row = _decode_row(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        if row.ph not in ("C", "M"):
            return row, {}
    found = plain_value(body)
    if found is None:
        return None
    value, text = found
    if not isinstance(value, dict):
        return None
    text.count_in(reading)
    return lenient(value, reading), _args(value)


def _args(value: dict[str, Any]) -> dict[str, Any]:
    args = value.get("args")
    return args if isinstance(args, dict) else {}


def _sample(text: bytes) -> str:
    return text[:200].decode("utf-8", "replace")
