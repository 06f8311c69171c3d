"""Cuts the list of events into chunks at the boundaries of rows, in bounded memory.

What stands between the first two rows, up to the second one's first key, stands between most rows: it is looked for from
the end of a block. Where it does not occur, any place will do at which one object ends and the next begins with a key
that rows have. A wrong boundary (inside a list of objects of some row's args) does little harm: the chunk does not
decode, and the tolerant path puts the row together again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lanewise.trace.file.salvage import ROW_END
from lanewise.trace.file.scan import end_of_value, skip_space

__all__ = ["CHUNK_BYTES", "Chunk", "chunks"]

CHUNK_BYTES = 1 << 20
"""Small enough that the objects of a chunk stay in the processor's cache, large enough to hide the cost per chunk."""

_LARGEST_ROW = 16 << 20
_WINDOWS = (1 << 14, 1 << 18)


class Chunk(NamedTuple):
    """Whole rows with commas between, not the comma after. The last one goes on to the end of the file."""

    number: int
    text: bytes
    last: bool


def chunks(first: bytes, more: Callable[[], bytes], size: int) -> Iterator[Chunk]:
    """Chunks of about `size` bytes.

    Args:
        first: what is already read, starting in the list of events.
        more: gives the next bytes of the file, empty at its end.
        size: what to aim for.
    """
    number = 0
    pending = first
    usual = None
    wanted = size
    while True:
        parts = [pending]
        held = len(pending)
        ended = False
        while held < wanted and not ended:
            block = more()
            ended = not block
            parts.append(block)
            held += len(block)
        pending = b"".join(parts)
        usual = usual or _between_rows(pending)
        at = 0
        while len(pending) - at > size or ended:
            if ended and len(pending) - at <= size:
                yield Chunk(number, pending[at:], True)
                return
            cut = _cut(pending, at, at + size, usual) or _cut(pending, at, len(pending), usual)
            if cut is None:
                break
            stop, resume = cut
            yield Chunk(number, pending[at:stop], False)
            number += 1
            at = resume
        pending = pending[at:]
        if ended:
            yield Chunk(number, pending, True)
            return
        wanted = max(size, 2 * len(pending)) + 1
        if len(pending) > _LARGEST_ROW:
            # No row is this long. The tolerant path keeps what it can and reports the rest.
            yield Chunk(number, pending, False)
            number += 1
            pending, wanted = b"", size


_NEXT_ROW = re.compile(rb'(\s*,\s*)\{\s*"[^"\\]*"\s*:')


class _Boundary(NamedTuple):
    """The text from the end of one row to the first key of the next; the first row ends after one byte of it."""

    text: bytes
    next_row: int


def _between_rows(text: bytes) -> _Boundary | None:
    start = skip_space(text, 0)
    end = end_of_value(text, start)
    found = _NEXT_ROW.match(text, end) if end > 0 and text[start : start + 1] == b"{" else None
    return _Boundary(text[end - 1 : found.end()], found.end(1) - end + 1) if found else None


def _cut(text: bytes, start: int, stop: int, usual: _Boundary | None) -> tuple[int, int] | None:
    """End of the last whole row in `text[start:stop]` and start of the next row."""
    if usual is not None:
        at = text.rfind(usual.text, start, stop)
        if at >= 0:
            return at + 1, at + usual.next_row
    for window in (*_WINDOWS, stop - start):
        found = list(ROW_END.finditer(text, max(start, stop - window), stop))
        if found:
            return found[-1].start(1), found[-1].end(1)
        if window >= stop - start:
            return None
    return None
