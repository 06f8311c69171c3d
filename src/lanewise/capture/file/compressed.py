"""A gzip file of two parts, the first of which can be replaced without compressing the second again.

Between the parts the compressor's window is emptied (a full flush, RFC 1951 section 3.2.4), so that neither depends on
the other; it is one ordinary member all the same (RFC 1952), which every reader of gzip takes.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

__all__ = ["TwoPartWriter", "replace_first_part"]

# No name, no time, no system: the same content makes the same file.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_CHUNK = 1 << 20


class TwoPartWriter:
    """Writes such a file: `write`, `end_first_part`, `write`, `close`.

    Attributes:
        first_part: bytes of the file up to the end of the first part, once it has ended.
    """

    def __init__(self, target: BinaryIO, level: int) -> None:
        self.first_part = 0
        self._target = target
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._crc = self._size = 0
        target.write(_HEADER)

    def write(self, data: bytes) -> None:
        """Compress `data`."""
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._target.write(self._deflate.compress(data))

    def end_first_part(self) -> None:
        """What is written from now on is the second part."""
        self._target.write(self._deflate.flush(zlib.Z_FULL_FLUSH))
        self.first_part = self._target.tell()

    def close(self) -> None:
        """Write the end; the target stays open."""
        self._target.write(self._deflate.flush())
        self._target.write(_trailer(self._crc, self._size))


def replace_first_part(source: BinaryIO, target: BinaryIO, first_part: int, data: bytes, level: int) -> int:
    """Copies `source` to `target` with `data` as its first part.

    Args:
        first_part: as of the writer of `source`.

    Returns:
        `first_part` of `target`. Raises ValueError if `source` is not such a file.
    """
    writer = TwoPartWriter(target, level)
    writer.write(data)
    writer.end_first_part()
    crc, size = zlib.crc32(data), len(data)
    source.seek(first_part)
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    while not inflate.eof:
        chunk = source.read(_CHUNK)
        if not chunk:
            raise ValueError("the compressed file ends too early")
        try:
            text = inflate.decompress(chunk)
        except zlib.error as error:
            raise ValueError(f"not compressed in two parts: {error}") from error
        # The checksum is of all of the text, so that it has to be seen; compressing it would take far longer.
        crc, size = zlib.crc32(text, crc), size + len(text)
        target.write(chunk[: len(chunk) - len(inflate.unused_data)])
    target.write(_trailer(crc, size))
    return writer.first_part


def _trailer(crc: int, size: int) -> bytes:
    return struct.pack("<II", crc, size & 0xFFFFFFFF)
