"""Gaps in which the host is blocked or the trace holds nothing: neither is the host's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.lines import Lines
from lanewise.trace.health import silent_launches
from lanewise.trace.intervals import Union, intersect, merge, subtract, union

if TYPE_CHECKING:
    from lanewise.measure.host import Host
    from lanewise.trace.model import Trace

__all__ = ["after_lost_launch", "blocked_part", "waits_in_gaps", "waits_of_launchers"]

# A wait returns this soon after the last thing that it can have waited for, at most.
_RETURN_NS = 100_000


def blocked_part(hosts: Union, waits: Union, spinning: Union) -> tuple[Union, Union]:
    """Of the time in which the next work was not launched, what the launching thread spent blocked: while a communication
    kernel ran, and while nothing that was recorded did, longer than a wait takes to return.

    Args:
        hosts: time in which the next work was not launched. waits: time in which the thread that launches it waited.
        spinning: time in which communication runs.
    """
    blocked = intersect(hosts, waits)
    silent = subtract(blocked, spinning)
    long = silent.end - silent.start > _RETURN_NS
    return intersect(blocked, spinning), Union(silent.start[long], silent.end[long])


def waits_in_gaps(gaps: Union, ready_start: np.ndarray, ready_line: np.ndarray, waits: dict[int, Union]) -> Union:
    """The part of each gap that the line which launches its end spent waiting; of any line where nothing ends it.

    Args:
        gaps: gaps. ready_start: start of what may end one, in order. ready_line: the line that launched it, -1 for none.
        waits: when each line waited.
    """
    row = np.searchsorted(ready_start, gaps.end, side="left")
    ends = row < len(ready_start)
    line = np.append(ready_line, -1)[row]
    parts = [
        intersect(Union(gaps.start[mine], gaps.end[mine]), time)
        for number, time in waits.items()
        if (mine := (line == number) | ~ends).any()
    ]
    return merge(*parts) if parts else Union.empty()


def waits_of_launchers(trace: Trace, host: Host, gaps: Union, start: np.ndarray, launch: np.ndarray) -> Union:
    """When the thread that launches the work after a gap sat in a wait. `start` and `launch` of that work, in order."""
    calls = trace.links.calls("wait")
    calls = calls[host.waiting[calls] & (trace.duration[calls] > 0)]
    if not (trace.duration[calls] > _RETURN_NS).any():
        return Union.empty()
    marks = trace.steps.event[trace.steps.event >= 0]
    line_of_lane = Lines.of(trace, int(trace.lane[marks[0]]) if len(marks) else -1).of_lane
    line = line_of_lane[trace.lane[calls]]
    waits = {
        number: union(trace.start[calls[line == number]], trace.end[calls[line == number]])
        for number in np.unique(line).tolist()
    }
    of_work = np.where(launch >= 0, line_of_lane[trace.lane[np.maximum(launch, 0)]], -1)
    return waits_in_gaps(gaps, start, of_work, waits)


def after_lost_launch(trace: Trace, gaps: Union) -> Union:
    """The part of each gap after a launch whose work is not in the trace: the device may have worked then."""
    if len(trace.links.launches) == 0:
        return Union.empty()
    lost = np.sort(trace.start[silent_launches(trace)])
    if len(lost) == 0:
        return Union.empty()
    row = np.searchsorted(lost, gaps.start)
    first = np.where(row < len(lost), lost[np.minimum(row, len(lost) - 1)], np.iinfo(np.int64).max)
    return union(np.minimum(first, gaps.end), gaps.end)
