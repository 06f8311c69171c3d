"""What one launch costs the host by itself: the operators that exist only for it."""

from __future__ import annotations

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["own_cost"]


@remembered
def own_cost(facts: Core) -> np.ndarray:
    """Host time of each launching call, without waits: the duration of the outermost operator in which it is the only
    launch, or of the call itself; ns, in the order of `Launches.call`.

    `Launches.host_cost` shares the outermost operator among its launches: right for sums over everything, but a wrapper
    around a whole layer says nothing about one of its operators.
    """
    trace, host = facts.trace, facts.host
    calls = facts.launches.call
    if len(calls) == 0:
        return np.empty(0, dtype=np.int64)
    ones = np.zeros(len(trace), dtype=np.int64)
    ones[calls] = 1
    inside = host.accumulate(ones)
    operator = trace.kind == Kind.OPERATOR
    owner = nearest(host.parent, operator, calls)
    owner = np.where((owner >= 0) & (inside[np.maximum(owner, 0)] == 1), owner, calls)
    while True:
        above = host.parent[owner]
        climb = (above >= 0) & operator[np.maximum(above, 0)] & (inside[np.maximum(above, 0)] == 1)
        if not climb.any():
            return np.maximum(trace.duration[owner] - host.wait_inside[owner], 0)
        owner = np.where(climb, above, owner)
