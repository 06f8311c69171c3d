"""Takes our own Python frames and threads out of an exported trace: they are not the program's."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

__all__ = ["OwnFrames"]

_FRAME = re.compile(
    rb'  \{\n +"ph": "X",\s+"cat": "python_function",\s+"name": "(?P<name>(?:[^"\\]|\\.)*)",\s+'
    rb'"pid": [^\n,]*,\s+"tid": (?P<tid>\d+),(?P<rest>\s(?:(?!  \}).*\n)*?)  \},\n'
)
_NUMBERS = re.compile(rb'"Python parent id": (\d+|null), "Python id": (\d+)')
_OURS = re.compile(
    rb"(?:^|/)lanewise/" + re.escape(Path(__file__).parent.name.encode()) + rb"/(?:\w+/)*\w+\.py\(\d+\): (\w+)"
)
_AROUND_THE_PROGRAM = {b"stepping", b"recorded", b"watched"}
"""Functions of ours that call the program's: only they themselves go."""


class OwnFrames:
    """Leaves out frames of ours with all that they call, and every frame of our threads.

    Args:
        threads: identifiers, as the system has them, of threads that are ours.
    """

    def __init__(self, threads: Collection[int]) -> None:
        self._threads = {str(thread).encode() for thread in threads}
        self._gone: set[bytes] = set()

    def without(self, text: bytes) -> bytes:
        """A part of the export, of whole events, without ours; parts come in the order of the file."""
        return _FRAME.sub(self._kept, text) if b'"python_function"' in text else text

    def _kept(self, event: re.Match[bytes]) -> bytes:
        ours = _OURS.search(event["name"])
        numbers = _NUMBERS.search(event["rest"])
        parent, own = numbers.groups() if numbers is not None else (b"", b"none")
        around = ours is not None and ours[1] in _AROUND_THE_PROGRAM
        if event["tid"] in self._threads or parent in self._gone or (ours is not None and not around):
            self._gone.add(own)
            return b""
        return b"" if around else event[0]
