"""A tree in a file: compact, versioned, and safe to read from anywhere.

    magic "LWTREE\\x00", one byte of major version, then a zlib stream of one msgpack map:
    version, info, strings, columns {name: {dtype, data}}, metrics {name: {dtype, data}}

Columns are little-endian arrays of the narrowest type that holds them. Nothing in the file depends on when or where it
was written: equal trees give equal bytes. Readers refuse another major version and ignore keys that they do not know.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lanewise.errors import InputError, NotATraceError, TooLargeError
from lanewise.tree.model import KIND_NAMES, METRICS, PHASES, Tree, TreeInfo

__all__ = ["MAGIC", "SUFFIX", "dumps", "is_tree", "load", "loads", "save"]

MAGIC = b"LWTREE\x00"
SUFFIX = ".lwtree"
_MAJOR = 1
_MINOR = 0
_COLUMNS = ("parent", "kind", "phase", "name", "detail", "forward")
_LARGEST = 1 << 30
_TYPES = ("<i1", "<i2", "<i4", "<i8", "<f8", "|i1")


class _Column(msgspec.Struct):
    dtype: str
    data: bytes


class _File(msgspec.Struct):
    minor: int
    info: TreeInfo
    strings: list[str]
    columns: dict[str, _Column]
    metrics: dict[str, _Column]


def dumps(tree: Tree, *, quick: bool = False) -> bytes:
    """The bytes of a tree file; `quick` ones are larger."""
    content = _File(
        minor=_MINOR,
        info=tree.info,
        strings=list(tree.strings),
        columns={name: _pack(getattr(tree, name)) for name in _COLUMNS},
        metrics={name: _pack(tree.metrics[name]) for name in METRICS},
    )
    return MAGIC + bytes([_MAJOR]) + zlib.compress(msgspec.msgpack.encode(content), 1 if quick else 9)


def loads(data: bytes, source: str = "the file") -> Tree:
    """The tree in some bytes.

    Raises:
        NotATraceError: it is no tree file.
        TooLargeError: it unpacks to more than 1 GiB.
        InputError: it is one of another version, or damaged.
    """
    if not data:
        raise InputError(f"{source} is damaged: it is empty")
    if not data.startswith(MAGIC):
        raise NotATraceError(f"{source} is not a lanewise tree")
    major = data[len(MAGIC)] if len(data) > len(MAGIC) else -1
    if major != _MAJOR:
        raise InputError(f"{source} is a tree of format {major}; this version of lanewise reads format {_MAJOR}")
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(data[len(MAGIC) + 1 :], _LARGEST)
        if unpacker.unconsumed_tail:
            raise TooLargeError(f"{source} unpacks to more than 1 GiB")
        if not unpacker.eof:
            raise InputError(f"{source} is damaged: it ends early")
        content = msgspec.msgpack.decode(raw, type=_File)
        return _tree(content)
    except (zlib.error, msgspec.MsgspecError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{source} is damaged: {error}") from error


def save(tree: Tree, path: Path | str) -> None:
    """Write a tree file. InputError if the path cannot be written."""
    try:
        Path(path).write_bytes(dumps(tree))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: Path | str) -> Tree:
    """Read a tree file; errors as in `loads`, and InputError if it cannot be opened."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return loads(data, str(path))


def is_tree(path: Path | str) -> bool:
    """Whether a file begins as a tree file does."""
    try:
        with Path(path).open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _pack(values: np.ndarray) -> _Column:
    if values.dtype.kind == "f":
        return _Column("<f8", values.astype("<f8").tobytes())
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for dtype in ("<i1", "<i2", "<i4"):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return _Column(dtype, values.astype(dtype).tobytes())
    return _Column("<i8", values.astype("<i8").tobytes())


def _unpack(column: _Column) -> np.ndarray:
    if column.dtype not in _TYPES:
        raise ValueError(f"column type {column.dtype!r}")
    values = np.frombuffer(column.data, dtype=column.dtype)
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _tree(content: _File) -> Tree:
    columns: dict[str, Any] = {name: _unpack(content.columns[name]) for name in _COLUMNS}
    length = len(columns["parent"])
    # A metric of a later version is ignored, one of an earlier version that is missing is zero.
    metrics: dict[str, np.ndarray] = {}
    for name in METRICS:
        stored = content.metrics.get(name)
        kind = np.float64 if name == "squares" else np.int64
        metrics[name] = _unpack(stored).astype(kind) if stored is not None else np.zeros(length, dtype=kind)
    strings = content.strings or [""]
    for name, most in (
        ("kind", len(KIND_NAMES)),
        ("phase", len(PHASES)),
        ("name", len(strings)),
        ("detail", len(strings)),
    ):
        column = columns[name]
        if len(column) and (int(column.min()) < 0 or int(column.max()) >= most):
            raise ValueError(f"column {name} is out of range")
    for name in ("parent", "forward"):
        if len(columns[name]) and int(columns[name].min()) < -1:
            raise ValueError(f"column {name} is out of range")
    return Tree(**columns, strings=strings, metrics=metrics, info=content.info)
