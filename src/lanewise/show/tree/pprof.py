"""A tree as a gzipped pprof profile.

The format is one protocol-buffer message (`perftools.profiles.Profile`); its few fields are written by hand, which
needs no dependency. One sample per context with a cost, one value per sample type, the phase as a label.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lanewise._version import __version__
from lanewise.errors import UsageError
from lanewise.show.safe_text import clean
from lanewise.trace.frames import frame_at, parse_frame
from lanewise.tree.model import PHASES, NodeKind, Tree

__all__ = ["SAMPLE_TYPES", "Source", "pprof", "source_of"]

SAMPLE_TYPES = (
    ("device", "nanoseconds"),
    ("count", "count"),
    ("host", "nanoseconds"),
    ("launches", "count"),
    ("bytes", "bytes"),
    ("allocated", "bytes"),
)
"""Metrics in a profile, with their units."""


def pprof(tree: Tree) -> bytes:
    """The bytes of a `.pb.gz` file, the same for equal trees. UsageError for a tree of differences."""
    table = _Strings()
    values = np.stack([tree.value(metric) for metric, _ in SAMPLE_TYPES], axis=1)
    if values.size and values.min() < 0:
        raise UsageError("this tree is a difference: pprof files hold costs, not changes of costs")
    body = bytearray()
    for metric, unit in SAMPLE_TYPES:
        body += _message(1, _number(1, table[metric]) + _number(2, table[unit]))
    location_of_key: dict[tuple[int, int, int], int] = {}
    location_of_node = [
        location_of_key.setdefault(key, len(location_of_key) + 1)
        for key in zip(tree.kind.tolist(), tree.name.tolist(), tree.detail.tolist(), strict=True)
    ]
    parent = tree.parent.tolist()
    phase_key = table["phase"]
    for node in np.flatnonzero(values.any(axis=1)).tolist():
        path: list[int] = []
        at = node
        while at >= 0:
            path.append(location_of_node[at])
            at = parent[at]
        label = _number(1, phase_key) + _number(2, table[PHASES[int(tree.phase[node])]])
        body += _message(2, _packed(1, path) + _packed(2, values[node].tolist()) + _message(3, label))
    # Readers want a mapping; the whole program is one.
    body += _message(3, _number(1, 1) + _number(5, table[clean(tree.info.source, 200) or "program"]) + _number(7, 1))
    for (kind, name, detail), location in location_of_key.items():
        function, file, begin, line = source_of(kind, tree.strings[name], tree.strings[detail])
        body += _message(4, _number(1, location) + _number(2, 1) + _message(4, _number(1, location) + _number(2, line)))
        body += _message(5, _number(1, location) + _number(2, table[function]) + _number(3, table[function])
                         + _number(4, table[file]) + _number(5, begin))  # fmt: skip
    comment, default = table[f"lanewise {__version__}"], table["device"]
    for text in table.texts:
        body += _message(6, text.encode("utf-8", "replace"))
    body += _number(13, comment) + _number(14, default)
    return gzip.compress(bytes(body), compresslevel=9, mtime=0)


class Source(NamedTuple):
    """What a reader of profiles is told of a context: the line is where it stands, or where the function begins."""

    function: str
    file: str = ""
    begin: int = 0
    line: int = 0


def source_of(kind: int, name: str, detail: str) -> Source:
    """Of the kind, name and detail of a context."""
    if kind == NodeKind.FRAME:
        frame = frame_at(name, detail)
        return Source(frame.function, frame.file, max(parse_frame(name).line, 0), max(frame.line, 0))
    return Source(f"{name} ({detail})" if kind == NodeKind.MODULE and detail and detail != name else name)


class _Strings:
    """The string table; row 0 is the empty string."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.rows.setdefault(text, len(self.rows))

    @property
    def texts(self) -> list[str]:
        """All strings, in order."""
        return list(self.rows)


# -- protocol-buffer wire format -------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    """A varint field; zero is the default and left out."""
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(_varint(value) for value in values))
