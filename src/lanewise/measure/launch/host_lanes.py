"""Host lanes: what a thread was doing at a given time, and when nothing was being dispatched by any thread."""

from __future__ import annotations

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.trace.intervals import Union, union
from lanewise.trace.schema import Kind

__all__ = ["dispatching", "slice_around"]

_WORKING = (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)


@remembered
def dispatching(facts: Core) -> Union:
    """Time in which any host thread is inside an operator or an API call."""
    trace, parent = facts.trace, facts.host.parent
    events = trace.of(*_WORKING)
    # Children add nothing to the union of their parents; annotations are no work by themselves.
    holder = parent[events]
    nested = (holder >= 0) & np.isin(trace.kind[np.maximum(holder, 0)], _WORKING)
    outer = events[~nested]
    return union(trace.start[outer], trace.end[outer])


def slice_around(facts: Core, rows: np.ndarray) -> np.ndarray:
    """For rows that name no thread (profiler overhead): the innermost host slice that spans most of each, or -1.

    Args:
        rows: event ids, few; each costs one pass over the host events.
    """
    trace, host = facts.trace, facts.host
    events = trace.of(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.DRIVER)
    result = np.full(len(rows), -1, dtype=np.int64)
    for at, row in enumerate(rows.tolist()):
        low, high = trace.start[row], trace.end[row]
        overlap = np.minimum(trace.end[events], high) - np.maximum(trace.start[events], low)
        spanning = events[overlap >= 0.8 * (high - low)]
        if len(spanning):
            result[at] = spanning[np.lexsort((trace.start[spanning], host.depth[spanning]))[-1]]
    return result
