"""Work from before the recording: until when the device still did it, and which streams waited for it.

Part of it is recorded without its launch, part not at all. What shows it then is a first operation that waits in its
queue although the device does nothing that is recorded. On which stream depends on the program: the first launch may go to
a stream that is free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.host import Host
    from lanewise.trace.model import Trace

__all__ = ["Backlog", "backlog_of"]

# An operation that starts this long after its launch returned, with nothing recorded before it, waited for unrecorded
# work (trap L4).
_WAIT_NS = 200_000

# A wait that is shorter than this share of what the host did before is a slow start of the device rather than a backlog.
_OF_HEAD = 0.1


@dataclass(frozen=True)
class Backlog:
    """Work from before the recording.

    Attributes:
        there: whether there was any.
        until: when the device was done with it, ns.
        streams: when each stream (a lane) was free of it, ns, where its first operation waited for it.
    """

    there: bool = False
    until: int = 0
    streams: dict[int, int] = field(default_factory=dict[int, int])


def backlog_of(trace: Trace, host: Host, rows: np.ndarray) -> Backlog:
    """The backlog of one device.

    Args:
        trace: the trace. host: its host times.
        rows: rows of `Trace.device_work` on the device, in order of start.
    """
    event = trace.device_work[rows]
    launch = trace.links.launch[rows]
    linked = np.flatnonzero(launch >= 0)
    if len(linked) == 0:
        return Backlog()
    start, end = trace.start[event], trace.end[event]
    begin = int(trace.steps.start.min())
    _, first = np.unique(trace.lane[event[linked]], return_index=True)
    streams: dict[int, int] = {}
    for row in linked[first].tolist():
        returned = _returned(trace, host, int(event[row]), int(launch[row]))
        if returned < 0:
            continue
        before = linked[linked < row]
        free = max([returned, *end[before].tolist()])
        wait = int(start[row]) - free
        did = int((end[before] - start[before]).sum())
        if wait > max(_WAIT_NS, _OF_HEAD * (returned - begin), did / _OF_HEAD):
            streams[int(trace.lane[event[row]])] = int(start[row])
    there = bool(streams) or bool((trace.links.orphan[rows] == 1).any())
    return Backlog(there, max([int(start[linked[0]]), *streams.values()]) if there else 0, streams)


def _returned(trace: Trace, host: Host, event: int, call: int) -> int:
    """When an operation could have started, had its stream been free, ns; -1 where the trace cannot tell.

    A blocking copy runs inside its call. One to the host begins as soon as its stream is free; one from the host first
    fills a buffer of the driver's.
    """
    if not host.waiting[call]:
        return int(trace.end[call])
    at = int(trace.lookup("copy_args", np.array([event]))[0]) if trace.kind[event] == Kind.MEMCPY else -1
    return int(trace.start[call]) if at >= 0 and trace["copy_args"]["direction"][at] == "DtoH" else -1
