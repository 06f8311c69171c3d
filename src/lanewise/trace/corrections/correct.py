"""All corrections of one trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.trace.corrections.device_clock import late_by
from lanewise.trace.corrections.durations import cut_durations
from lanewise.trace.corrections.launch_ids import calls_by_id
from lanewise.trace.corrections.open_frames import cut_open_frames, cut_open_ranges
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
        closed: how many frames and ranges of the host were left open, and closed.
        clock_ns: how much later the device's clock was than the host's; 0 where nothing proves it.
        cut: device operations whose duration could not be. cut_ns: how much was cut off all of them.
        recorded_ns: device time as recorded, of which `cut_ns` is part.
    """

    start: np.ndarray
    duration: np.ndarray
    closed: int
    clock_ns: int
    cut: np.ndarray
    cut_ns: int
    recorded_ns: int


def correct(
    events: Mapping[str, np.ndarray],
    lanes: Mapping[str, np.ndarray],
    frames: Mapping[str, np.ndarray],
    names: Sequence[str],
) -> Corrections:
    """Correct the times of a trace.

    Args:
        events, lanes: those tables. frames: the table `python_args`. names: of events.
    """
    start, kind = events["start"], events["kind"]
    duration = _closed(events, frames, names)
    closed = int(np.count_nonzero(duration != events["duration"]))
    device = np.flatnonzero(np.isin(kind, _WORK))
    recorded = int(duration[device].sum())
    nothing = Corrections(start, duration, closed, 0, device[:0], 0, recorded)
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
    return Corrections(start, duration, closed, clock, cut, cut_ns, recorded)


def _closed(events: Mapping[str, np.ndarray], frames: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Durations with what was left open on the host closed; those of the table itself where nothing was."""
    start, duration, lane = events["start"], events["duration"], events["lane"]
    result = duration
    of_frame = frames["event"].astype(np.int64)
    if len(of_frame):
        result = duration.copy()
        result[of_frame] = cut_open_frames(
            start[of_frame], duration[of_frame], lane[of_frame], frames["python_id"], frames["parent_id"]
        )
    ranges = np.flatnonzero(np.isin(events["kind"], (Kind.ANNOTATION, Kind.OPERATOR)))
    marks = [number for number, name in enumerate(names) if name.startswith("ProfilerStep#")]
    # The profiler closes the marks of its own steps.
    marked = np.isin(events["name"][ranges], marks)
    short = cut_open_ranges(start[ranges], duration[ranges], lane[ranges], marked)
    if (short < duration[ranges]).any():
        result = result.copy()
        result[ranges] = short
    if result is not duration and np.array_equal(result, duration):
        result = duration
    result.flags.writeable = False
    return result
