"""Cuts the list of events into chunks at the boundaries of rows, in bounded memory.

A boundary is a place where one object ends and the next begins with a key that only rows have. It is found from the end
of a block, so only a few kilobytes of each block are searched. A wrong boundary (inside a list of objects of some row's
args) does no harm: the chunk does not decode, and the tolerant path puts the row together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lanewise.trace.repair import ROW_END

__all__ = ["CHUNK_BYTES", "Chunk", "chunks"]

CHUNK_BYTES = 1 << 20
"""Small enough that the objects of a chunk stay in the processor's cache, large enough to hide the cost per chunk."""

_LARGEST_ROW = 64 << 20
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
        at = 0
        while len(pending) - at > size or ended:
            if ended and len(pending) - at <= size:
                yield Chunk(number, pending[at:], True)
                return
            cut = _cut(pending, at, at + size)
            if cut is None:
                cut = _cut(pending, at, len(pending))
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


def _cut(text: bytes, start: int, stop: int) -> tuple[int, int] | None:
    """End of the last whole row in `text[start:stop]` and start of the next row."""
    for window in (*_WINDOWS, stop - start):
        found = list(ROW_END.finditer(text, max(start, stop - window), stop))
        if found:
            return found[-1].start(1), found[-1].end(1)
        if window >= stop - start:
            return None
    return None
