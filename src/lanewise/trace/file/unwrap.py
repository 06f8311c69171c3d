"""Stored bytes -> the text of a trace: their kind by the first ones, gzip member by member, with a bound on growth."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from lanewise.errors import NotATraceError, TooLargeError
from lanewise.trace.reading_losses import Reading

__all__ = ["BLOCK_BYTES", "DEFAULT_MAX_BYTES", "unwrap"]

BLOCK_BYTES = 1 << 20
DEFAULT_MAX_BYTES = 64 << 30
"""No trace is larger than this when unpacked; a compression bomb may be."""

_RATIO_CHECKED_ABOVE = 256 << 20
_LARGEST_RATIO = 500
"""Traces shrink 10 to 40 times. Above this, and above 256 MiB, it is not a trace that is growing."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; unpack it first: zstd -d FILE"),
    (b"\xfd7zXZ\x00", "it is compressed with xz; unpack it first: xz -d FILE"),
    (b"BZh", "it is compressed with bzip2; unpack it first: bzip2 -d FILE"),
    (b"PK\x03\x04", "it is a zip archive; unpack it first"),
    (b"SQLite format 3\x00", "it is an SQLite database (an export of Nsight Systems or rocpd), not a JSON trace"),
    (b"\xff\xfe", "it is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16 text; save it as UTF-8"),
    (b"\x7fELF", "it is an executable, not a trace"),
    (b"%PDF", "it is a PDF file, not a trace"),
    (b"PAR1", "it is a Parquet file, not a trace"),
    (b"ARROW1", "it is an Arrow file, not a trace"),
    (b"LWTREE\x00", "it is a tree that lanewise saved, not a trace; `lanewise tree FILE` opens it"),
    (b"NVR", "it is an Nsight Compute report; export a PyTorch trace with torch.profiler instead"),
)


def refuse_by_magic(head: bytes, name: str) -> None:
    """Raise `NotATraceError` if the first bytes, or a binary file's name, tell what else this is."""
    for magic, message in _MAGIC:
        if head.startswith(magic):
            raise NotATraceError(message)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise NotATraceError("it is a Python pickle (a PyTorch memory snapshot, most likely), not a JSON trace")
    if head.lstrip()[:1] in (b"{", b"[", b""):
        return
    if b"\x00" in head or name.endswith(".pb"):
        lower = name.lower()
        if lower.endswith((".nsys-rep", ".qdrep")):
            raise NotATraceError("it is an Nsight Systems report; record a trace with torch.profiler instead")
        if lower.endswith(".ncu-rep"):
            raise NotATraceError("it is an Nsight Compute report; record a trace with torch.profiler instead")
        if lower.endswith(".pb"):
            raise NotATraceError("it is a protocol buffer (an XPlane or Perfetto trace), not a JSON trace")


def unwrap(
    stream: BinaryIO, name: str, reading: Reading, max_bytes: int, seen: Callable[[bytes], object]
) -> Callable[[], bytes]:
    """A function that gives the trace's text block by block, empty at its end.

    Args:
        stream: the bytes as stored.
        name: for judging binary files.
        reading: where damage is counted; `bytes_read` and `compressed` are kept up to date.
        max_bytes: bound on the unpacked text.
        seen: is called with every stored block.

    Raises:
        NotATraceError: the first bytes tell that it is something else.
        TooLargeError: while reading, when the text exceeds `max_bytes` or grows like a compression bomb.
    """

    def stored() -> bytes:
        try:
            block = stream.read(BLOCK_BYTES)
        except OSError as error:
            reading.truncated = True
            reading.lose("the storage failed while reading", str(error))
            return b""
        reading.bytes_read += len(block)
        seen(block)
        return block

    first = stored()
    while len(first) < 16 and (block := stored()):
        first += block
    if first.startswith(b"\x1f\x8b"):
        reading.compressed = True
        text = _bounded(_gunzip(first, stored, reading), reading, max_bytes)
        inner = text()
        refuse_by_magic(inner, name)
        if inner.startswith(b"\x1f\x8b"):
            raise NotATraceError("it is compressed twice; unpack it once: gzip -d FILE")
        return _with_first(inner, text)
    refuse_by_magic(first, name)
    return _bounded(_with_first(first, stored), reading, max_bytes)


def _with_first(first: bytes, more: Callable[[], bytes]) -> Callable[[], bytes]:
    waiting = [first]
    return lambda: waiting.pop() if waiting else more()


def _bounded(more: Callable[[], bytes], reading: Reading, max_bytes: int) -> Callable[[], bytes]:
    total = 0

    def text() -> bytes:
        nonlocal total
        block = more()
        total += len(block)
        if total > max_bytes:
            raise TooLargeError(f"it holds more than {max_bytes:,} bytes of text; raise the bound to read it")
        if reading.compressed and total > _RATIO_CHECKED_ABOVE and total > _LARGEST_RATIO * reading.bytes_read:
            raise TooLargeError(f"it grows more than {_LARGEST_RATIO} times when unpacked, as no trace does")
        return block

    return text


def _gunzip(first: bytes, stored: Callable[[], bytes], reading: Reading) -> Callable[[], bytes]:
    """Unpacked blocks of all gzip members; what a damaged tail still gives is kept."""
    member = zlib.decompressobj(wbits=31)
    waiting = first
    members_read = 0
    ended = False

    def stop(reason: str, sample: str, *, lost: bool) -> bytes:
        nonlocal ended
        ended = True
        if lost:
            reading.truncated = True
            reading.lose(reason, sample)
        else:
            reading.repair(reason, sample)
        return b""

    def text() -> bytes:
        nonlocal member, waiting, members_read
        while not ended:
            if member.eof:
                members_read += 1
                waiting = member.unused_data
                while len(waiting) < 2 and (block := stored()):
                    waiting += block
                if not waiting.strip(b"\0"):
                    return b""
                if not waiting.startswith(b"\x1f\x8b"):
                    return stop("bytes after the end of the compressed data", waiting[:16].hex(" "), lost=False)
                member = zlib.decompressobj(wbits=31)
            if not waiting:
                waiting = stored()
                if not waiting:
                    return stop("compressed data that is cut off", "", lost=True)
            before = member.copy()
            try:
                block = member.decompress(waiting, BLOCK_BYTES)
            except zlib.error as error:
                # A checksum comes after all data of its member; any other error cuts the data off.
                if "incorrect" in str(error):
                    stop("compressed data with a wrong checksum", str(error), lost=False)
                else:
                    stop("compressed data that is damaged", str(error), lost=True)
                return _up_to_damage(before, waiting)
            waiting = b"" if member.eof else member.unconsumed_tail
            if block:
                return block
        return b""

    return text


def _up_to_damage(member: Any, data: bytes) -> bytes:
    """What `data` unpacks to before the byte that cannot be unpacked: a failing call gives nothing of what it did."""
    parts: list[bytes] = []
    with suppress(zlib.error):
        for at in range(len(data)):
            parts.append(member.decompress(data[at : at + 1]))
    return b"".join(parts)
