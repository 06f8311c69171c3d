"""All corrections of one trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.trace.corrections.device_clock import late_by
from lanewise.trace.corrections.durations import cut_durations
from lanewise.trace.corrections.launch_ids import calls_by_id
from lanewise.trace.dialects import api_role
from lanewise.trace.schema import Kind

__all__ = ["Corrections", "correct"]

_WORK = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
_WHOLE_DEVICE = ("DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize")


@dataclass(frozen=True, eq=False)
class Corrections:
    """Times of all events, put right.

    Attributes:
        start, duration: of each event, ns, read-only.
        clock_ns: how much later the device's clock was than the host's; 0 where nothing proves it.
        cut: device operations whose duration could not be. cut_ns: how much was cut off all of them.
        recorded_ns: device time as recorded, of which `cut_ns` is part.
    """

    start: np.ndarray
    duration: np.ndarray
    clock_ns: int
    cut: np.ndarray
    cut_ns: int
    recorded_ns: int


def correct(events: Mapping[str, np.ndarray], lanes: Mapping[str, np.ndarray], names: Sequence[str]) -> Corrections:
    """Correct the times of a trace.

    Args:
        events, lanes: those tables. names: of events.
    """
    start, duration, kind = events["start"], events["duration"], events["kind"]
    device = np.flatnonzero(np.isin(kind, _WORK))
    recorded = int(duration[device].sum())
    nothing = Corrections(start, duration, 0, device[:0], 0, recorded)
    if len(device) == 0:
        return nothing
    calls = np.flatnonzero(np.isin(kind, (Kind.RUNTIME, Kind.DRIVER)))
    launch = calls_by_id(events["correlation"], device, calls)
    name_of_call = events["name"][calls]
    used = np.unique(name_of_call).tolist()

    def named(*wanted: str, within: str = "") -> np.ndarray:
        """Calls of a role whose name holds one of some texts."""
        rows = [n for n in used if api_role(names[n]) == within and any(text in names[n] for text in wanted)]
        return calls[np.isin(name_of_call, rows)]

    of_graph = np.isin(launch, named("", within="graph_launch"))
    single = device[~of_graph]
    short = cut_durations(start[single], duration[single], events["lane"][single], events["name"][single])
    cut = single[short < duration[single]]
    if len(cut):
        cut_ns = int((duration[single] - short).sum())
        duration = duration.copy()
        duration[single] = short
        duration.flags.writeable = False
    else:
        cut_ns = 0

    # Where all work is on one stream, a wait for a stream is one for all that was launched.
    one_stream = len(np.unique(events["lane"][device])) == 1
    waits = named(*_WHOLE_DEVICE, *(("StreamSynchronize",) if one_stream else ()), within="wait")
    linked = launch >= 0
    call, work = launch[linked], device[linked]
    clock = late_by(
        start[work],
        start[work] + duration[work],
        start[call],
        start[call] + duration[call],
        start[waits],
        start[waits] + duration[waits],
    )
    if clock:
        start = np.where((lanes["side"] == "device")[events["lane"]], start - clock, start)
        start.flags.writeable = False
    if not clock and not len(cut):
        return nothing
    return Corrections(start, duration, clock, cut, cut_ns, recorded)
