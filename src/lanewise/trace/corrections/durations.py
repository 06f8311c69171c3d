"""Durations that cannot be: an operation that runs on beyond the whole of the next one of its stream."""

from __future__ import annotations

import numpy as np

__all__ = ["cut_durations"]

# Up to this much overlap is rounding, or a kernel that was allowed to begin early (trace-format, trap R5).
_OVERLAP_NS = 20_000
# A lane on which this share of the operations would have to be cut is no stream: its work runs in any order.
_NO_STREAM_FROM = 0.20
# So many operations of a name tell what one usually takes.
_USUAL_FROM = 3


def cut_durations(start: np.ndarray, duration: np.ndarray, lane: np.ndarray, name: np.ndarray) -> np.ndarray:
    """Durations of device operations, those that cannot be replaced by what operations of their name usually take, and
    ended where the next operation of the stream begins at the latest.

    A stream does one thing after the other. A kernel may be launched into the end of the one before it, but then it
    ends after that one; the nodes of a graph may run side by side, and do not belong here.

    Args:
        start, duration, lane, name: of device operations, ns.
    """
    result = duration.copy()
    if len(start) < 2:
        return result
    order = np.lexsort((start, lane))
    s, e, where = start[order], (start + duration)[order], lane[order]
    following = np.where(where[1:] == where[:-1], s[1:], np.iinfo(np.int64).max)
    beyond = (e[:-1] - np.minimum(following, e[:-1]) > _OVERLAP_NS) & (e[:-1] > e[1:])
    share = np.bincount(where[:-1][beyond], minlength=int(where.max()) + 1) / np.maximum(np.bincount(where), 1)
    rows = np.flatnonzero(beyond & (share[where[:-1]] < _NO_STREAM_FROM))
    odd = order[rows]
    result[odd] = following[rows] - s[rows]
    sound = np.ones(len(start), dtype=bool)
    sound[odd] = False
    for one in np.unique(name[odd]).tolist():
        usual = duration[sound & (name == one)]
        if len(usual) >= _USUAL_FROM:
            mine = odd[name[odd] == one]
            result[mine] = np.minimum(result[mine], int(np.median(usual)))
    return result
