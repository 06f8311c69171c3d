"""How large the trace will be, told while it is recorded.

The profiler keeps its rows in memory until it stops, and offers no count of them. What the allocator has handed out
tells: it grows by 1 byte for every 1.0 in the file with shapes, 1.4 without, more with stacks or memory events (torch
2.13). Where the C library does not say what it has handed out, the size of the process stands in for it. That one is
crude: it may grow fifty times as fast as the rows, or not at all.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from lanewise.capture.profiling.profiler import Flags

__all__ = ["TraceSize", "allocated"]

_FROM_ALLOCATED = 1 << 20
_FROM_RESIDENT = 16 << 20
"""Below so much growth, what else the program keeps says more than the rows do."""

_BYTES_PER_US = 1_500
"""An operator takes a microsecond at least, and its row, with those of the memory that it takes and gives back, up to so
much in the file (1,135 bytes in 1.3 us on the fastest processor seen)."""


class TraceSize:
    """Predicts the uncompressed size of the trace file from the growth of memory in use since `begin`.

    Args:
        flags: what is recorded.
        now: clock, nanoseconds.
        used: bytes in use, and whether that is exact; 0 where the system does not say.
    """

    def __init__(
        self,
        flags: Flags,
        now: Callable[[], int] = time.perf_counter_ns,
        used: Callable[[], tuple[int, bool]] | None = None,
    ) -> None:
        self._per_byte = _bytes_in_file_per_byte(flags)
        self._now = now
        self._used = used or _used
        self._begin = 0
        self._begun = 0
        self._most = 0
        self._inside = 0

    def observe(self) -> None:
        """Called now and then in the steps before `begin`: how much they use in their middle."""
        self._most = max(self._most, self._used()[0])

    def begin(self) -> None:
        """Recording starts now."""
        self._begin, self._begun = self._used()[0], self._now()
        self._inside = max(0, self._most - self._begin)

    def predicted(self, *, inside: bool = False) -> int:
        """Bytes of the trace if recording stopped now; 0 while too small to tell or where the system does not say.

        `inside` a step the program holds what it needs for that step only; what it held there before `begin` is not
        taken for rows.
        """
        used, exact = self._used()
        grown = used - self._begin - (self._inside if inside else 0)
        if not self._begin or grown <= (_FROM_ALLOCATED if exact else _FROM_RESIDENT):
            return 0
        # A large tensor appears at once, rows take their time.
        return int(min(grown * self._per_byte, (self._now() - self._begun) / 1000 * _BYTES_PER_US))


def _bytes_in_file_per_byte(flags: Flags) -> float:
    """The largest ratio seen on CPU programs: few operands and no module calls."""
    if flags.memory:
        return 2.3
    if flags.stacks:
        return 1.6 if flags.shapes else 2.1
    return 1.1 if flags.shapes else 1.4


def _used() -> tuple[int, bool]:
    resident = _resident()
    own = allocated()
    # Another allocator in the place of the C library's leaves that one with next to nothing.
    return (own, True) if own > resident / 50 else (resident, False)


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated() -> int:
    """Bytes that glibc's allocator has handed out; 0 elsewhere. Takes 25 to 40 us."""
    if _mallinfo is None:
        return 0
    info = _mallinfo()
    return info.uordblks + info.hblkhd


def _find_mallinfo() -> Callable[[], _MallocInfo] | None:
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return None
    found.restype = _MallocInfo
    found.argtypes = []
    return found


_mallinfo = _find_mallinfo()


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
