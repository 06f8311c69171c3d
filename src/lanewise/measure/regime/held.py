"""Gaps at whose end launched work begins although nothing that was recorded had kept it waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.intervals import Union, subtract, union
from lanewise.trace.metadata import from_metadata

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["copying_from", "held_and_collected", "what_ended_before"]

_COLLECTED_NS = 5_000
"""Where the driver collects launches it holds them back for tens of microseconds, too."""
_HELD_NS = 100_000
"""Work in a queue begins a microsecond after what it waits for; so long after, that was something else."""

# What an operation waited for ended at most this long before it began.
_NEAR_NS = 50_000
_CLOCK_NS = 2_000


def what_ended_before(start: np.ndarray, lane: np.ndarray, other_end: np.ndarray, other_lane: np.ndarray) -> np.ndarray:
    """Whether something on another lane ended just before each operation began, bool.

    Args:
        start, lane: of the operations, ns. other_end, other_lane: of all that they may have waited for.
    """
    order = np.argsort(other_end, kind="stable")
    end, of = other_end[order], other_lane[order]
    at = np.searchsorted(end, start + _CLOCK_NS, side="right") - 1
    result = np.zeros(len(start), dtype=bool)
    for _ in range(4):  # the operation's own lane may have ended something between
        row = np.maximum(at, 0)
        result |= (at >= 0) & (start - end[row] <= _NEAR_NS) & (of[row] != lane)
        at = at - 1
    return result


def held_and_collected(
    trace: Trace, waits: Union, ready_start: np.ndarray, explained: np.ndarray
) -> tuple[Union, Union, Union]:
    """Time in which launched work waits, ns, in three: it is held back, nobody knows why; the driver collects launches,
    which is the host's; the rest, in which it waits for other work. Arguments as of `_held_gaps`."""
    collects = _submitted_late(trace)
    held = _held_gaps(waits, ready_start, explained, from_ns=_COLLECTED_NS if collects else _HELD_NS)
    rest, none = subtract(waits, held), Union.empty()
    return (none, held, rest) if collects else (held, none, rest)


def _held_gaps(gaps: Union, ready_start: np.ndarray, explained: np.ndarray, *, from_ns: int) -> Union:
    """Those of some gaps that end with work of which nothing recorded says why it did not begin before.

    Args:
        gaps: time in which launched work does not run, ns. ready_start: start of all work, in order. explained: whether
            it is known what each waited for. from_ns: shorter ones are the queue's own pauses.
    """
    row = np.searchsorted(ready_start, gaps.end, side="left")
    ends = row < len(ready_start)
    held = ends & ~explained[np.minimum(row, len(ready_start) - 1)] if len(ready_start) else ends
    held &= gaps.end - gaps.start > from_ns
    return union(gaps.start[held], gaps.end[held])


def copying_from(trace: Trace, copy: np.ndarray, called: np.ndarray, began: np.ndarray) -> np.ndarray:
    """From when on a call that waits for its own copy copies, ns.

    From its beginning on: the driver first fills a buffer of its own. A copy to the host that stays in its queue waits for
    what is before it there, and moves nothing.

    Args:
        copy: the copies. called, began: when each was called, and when the device began, ns.
    """
    at = trace.lookup("copy_args", copy)
    to_host = (
        (at >= 0) & (trace["copy_args"]["direction"][at] == "DtoH") if len(trace["copy_args"]["event"]) else at >= 0
    )
    return np.where(to_host & (began - called > _HELD_NS), began, called)


def _submitted_late(trace: Trace) -> bool:
    """Whether the trace is from a system whose driver collects launches before it hands them to the device: Windows, as the
    recorder wrote, or by the paths of its files."""
    recorded = from_metadata(trace.metadata)
    host = recorded.environment.get("host") if recorded is not None else None
    if isinstance(host, dict) and host.get("system") == "Windows":
        return True
    return bool(trace.name_mask(r"^[A-Za-z]:\\|^[^/]*\\[^/]*\.py\(\d+\): ").any())
