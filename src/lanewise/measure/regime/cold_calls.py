"""What a program pays once and a recording may hold: calls that start the device, and the first launch of each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lanewise.measure.host import Host
    from lanewise.trace.model import Trace

__all__ = ["COLD_CALL_NS", "start_up_calls"]

# Nothing that a warm program calls takes so long unless it waits.
COLD_CALL_NS = 50_000_000
# A launch that loads its kernel takes milliseconds: so much, and so many times what a launch takes otherwise.
_LOADS_NS, _LOADS_RATIO = 1_000_000, 50.0


def start_up_calls(trace: Trace, host: Host) -> np.ndarray:
    """Calls of the device's runtime that are long because the device, or a kernel, is used for the first time.

    In steps that are marked only launches count, and only if they are long in no more than half of the steps: what is long
    again and again is no start.
    """
    steps = trace.steps
    calls = trace.api_calls
    calls = calls[~host.waiting[calls] & (calls != host.profiler_sync)]
    launches = calls[trace.links.names_of("launch")[trace.name[calls]]]
    if len(launches) == 0:
        return launches
    length = trace.duration[launches]
    loads = launches[length >= max(_LOADS_NS, _LOADS_RATIO * float(np.median(length)))]
    if steps.recorded and len(steps) > 1:
        return loads if len(np.unique(steps.of_event[loads])) * 2 <= len(steps) else loads[:0]
    memory = trace.links.calls("allocate", "free", "graph_launch", "graph_build")
    # The driver's memory is another matter, but for the first of its calls, which starts the device.
    first = calls[np.argmin(trace.start[calls])]
    long = calls[(trace.duration[calls] >= COLD_CALL_NS) & (~np.isin(calls, memory) | (calls == first))]
    return np.union1d(loads, long)
