"""Columns -> one compact text that a page can carry, and that a browser unpacks without a library.

An integer column is delta-coded where that helps, made non-negative (zigzag), stored in as few bytes as its largest
value needs, and shuffled: all lowest bytes first, then the next ones, because bytes of one significance resemble each
other. A float column is shuffled as it is. All columns follow each other in one zlib stream, which is base64 in a page
and raw over a server. `web/src/data/unpack.ts` is the other half.

Integers must fit a double exactly (|value| < 2^53): nanoseconds do for 104 days.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

__all__ = ["pack", "unpack"]

_LIMIT = 2**53


def pack(columns: Mapping[str, np.ndarray], *, delta: Collection[str] = (), extra: Any = None, level: int = 6) -> bytes:
    """One zlib stream: length of the header (4 bytes, little endian), the header as JSON, then the columns.

    Args:
        columns: one-dimensional arrays of integers, booleans or floats; lengths may differ.
        delta: names of integer columns to store as differences: sorted or slowly changing ones.
        extra: any JSON value that travels in the header.
        level: of zlib.

    Raises:
        ValueError: an integer that a double cannot hold.
    """
    heads: list[dict[str, Any]] = []
    bodies: list[bytes] = []
    for name, column in columns.items():
        head, body = _coded(name, np.asarray(column), name in delta)
        heads.append(head)
        bodies.append(body)
    # ASCII only: a lone surrogate in a name is valid JSON, but not valid UTF-8.
    header = json.dumps({"columns": heads, "extra": extra}, ensure_ascii=True, separators=(",", ":")).encode()
    return zlib.compress(len(header).to_bytes(4, "little") + header + b"".join(bodies), level)


def _coded(name: str, column: np.ndarray, delta: bool) -> tuple[dict[str, Any], bytes]:
    count = len(column)
    if column.dtype.kind == "f":
        values = column.astype("<f4" if column.dtype.itemsize <= 4 else "<f8")
        return {"name": name, "n": count, "bytes": values.dtype.itemsize, "float": True}, _shuffled(values)
    values = column.astype(np.int64)
    if count and (int(values.max()) >= _LIMIT or int(values.min()) <= -_LIMIT):
        raise ValueError(f"{name}: an integer beyond 2^53 would lose digits in a browser")
    head: dict[str, Any] = {"name": name, "n": count}
    if delta:
        values = np.diff(values, prepend=np.int64(0))
        head["delta"] = True
    if count and int(values.min()) < 0:
        values = (values << 1) ^ (values >> 63)
        head["zigzag"] = True
    largest = int(values.max()) if count else 0
    width = 1 if largest < 2**8 else 2 if largest < 2**16 else 4 if largest < 2**32 else 8
    head["bytes"] = width
    return head, _shuffled(values.astype(f"<u{width}"))


def _shuffled(values: np.ndarray) -> bytes:
    width = values.dtype.itemsize
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, width).T.tobytes()


def unpack(data: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """The columns (int64 and floats) and the extra value; what the browser does, for tests and tools."""
    raw = zlib.decompress(data)
    size = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + size])
    at, columns = 4 + size, {}
    for head in header["columns"]:
        count, width = head["n"], head["bytes"]
        planes = np.frombuffer(raw, np.uint8, count * width, at).reshape(width, count)
        at += count * width
        whole = np.ascontiguousarray(planes.T).reshape(-1)
        if head.get("float"):
            columns[head["name"]] = whole.view(f"<f{width}")
            continue
        values = whole.view(f"<u{width}").astype(np.uint64).astype(np.int64)
        if head.get("zigzag"):
            values = (values >> 1) ^ -(values & 1)
        columns[head["name"]] = np.cumsum(values) if head.get("delta") else values
    return columns, header["extra"]
