"""Profiler stalls: host time that CUPTI's buffer requests took from the thread that launched.

An `Activity Buffer Request` row names no thread (trace-format 9.10). It is charged only where one call has more than
80 % of the request as its own time and the host did nothing else meanwhile; a request that other threads worked through
cost nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["Stalls", "profiler_stalls"]

_REQUEST = "Activity Buffer Request"
_OWN_SHARE = 0.8
_ROWS_MEANWHILE = 2


class Stalls(NamedTuple):
    """Buffer requests that stopped a thread: the overhead row, and the innermost call it stretched."""

    request: np.ndarray
    call: np.ndarray


def profiler_stalls(trace: Trace, parent: np.ndarray) -> Stalls:
    """Find the stalls.

    Args:
        trace: the trace.
        parent: parent of each host event without Python frames, shape (events,).
    """
    requests = trace.of(Kind.OVERHEAD)
    requests = requests[np.isin(trace.name[requests], trace.name_ids(_REQUEST))]
    calls = trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER, Kind.ANNOTATION)
    stalled: list[int] = []
    stretched: list[int] = []
    for request in requests.tolist():
        low, high = int(trace.start[request]), int(trace.end[request])
        around = calls[(trace.start[calls] < high) & (trace.end[calls] > low)]
        began_meanwhile = int(np.count_nonzero(trace.start[around] > low))
        if len(around) == 0 or began_meanwhile > _ROWS_MEANWHILE:
            continue
        own = np.zeros(len(trace), dtype=np.int64)
        own[around] = np.minimum(trace.end[around], high) - np.maximum(trace.start[around], low)
        inner = around[parent[around] >= 0]
        overlap = own[inner].copy()
        np.subtract.at(own, parent[inner], overlap)
        best = int(around[np.argmax(own[around])])
        if own[best] > _OWN_SHARE * (high - low):
            stalled.append(request)
            stretched.append(best)
    return Stalls(np.array(stalled, dtype=np.int64), np.array(stretched, dtype=np.int64))
