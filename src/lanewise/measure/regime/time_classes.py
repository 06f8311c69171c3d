"""Where the time of each step went: the device computing, copying, communicating, or waiting, and for whom.

The classes are those of diagnoses.md section 1, disjoint, in this priority, and they sum to the step's period:

    compute        a kernel that is not communication runs
    transfer       a copy or set runs, or a host thread sits in a copy that blocks it
    host           the next compute or copy op is not launched yet, even if a communication kernel spins meanwhile;
                   plus the launch latency of a drained stream
    communication  a communication kernel runs and the rest is already launched, or the host waits for that kernel
    dependency     launched, and waiting for an event, a stream or the queue
    unknown        the trace cannot tell: work launched before the recording, records that are lost, a wait for nothing
                   that was recorded, the profiler's own stalls

A step's window on the device runs from the end of the previous step's last device op to the end of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.replay.lines import line_of_lanes
from lanewise.trace.groups import distinct
from lanewise.trace.health import silent_launches
from lanewise.trace.intervals import Union, covered, intersect, merge, subtract, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.host import Host
    from lanewise.trace.model import Trace

__all__ = [
    "CLASSES",
    "LATENCY_NS",
    "WORK",
    "TimeClasses",
    "blocked_part",
    "classify_time",
    "host_part",
    "waits_in_gaps",
]

CLASSES: tuple[str, ...] = ("compute", "transfer", "host", "communication", "dependency", "unknown")
WORK = frozenset({"compute", "transfer", "communication"})
"""Classes in which the device works; in the others it is idle, or the trace cannot tell."""

# A launch onto a drained stream takes this long at most before its work starts; longer is a dependency (typically 4 to
# 15 us on our H100, trace-format 9.6).
LATENCY_NS = 50_000

# A first linked op that starts this long after its launch returned waited for unrecorded work (trap L4).
_HEAD_WAIT_NS = 200_000

# A wait returns this soon after the last thing that it can have waited for, at most.
_RETURN_NS = 100_000


@dataclass(frozen=True, eq=False)
class TimeClasses:
    """Time classes of the busiest device.

    Attributes:
        device: ordinal of the device as text; "" if there is no device work.
        sets: the time of each class over the whole recording, by class name.
        busy: time in which any device op runs (kernels, copies and sets; annotations never).
        window_start, window_end: device window of each step, ns, shape (steps,).
        of_step: ns per step and class, shape (steps, len(CLASSES)).
        leaks_in: whether work of earlier, unrecorded steps runs at the head (MEA111), and until when, ns.
        stalls: the profiler's buffer requests that blocked a host thread (MEA103).
        untold: the unknown time by why it is unknown: `head`, `stalls`, `unlinked`, `lost`, `blocked`.
    """

    device: str
    sets: dict[str, Union]
    busy: Union
    window_start: np.ndarray
    window_end: np.ndarray
    of_step: np.ndarray
    leaks_in: bool
    leak_until: int
    stalls: Union
    untold: dict[str, Union]


def classify_time(trace: Trace, host: Host, communicating: np.ndarray) -> TimeClasses:
    """Classify the time of every step, on the device with the most work. `communicating` marks rows of `device_work`."""
    rows, device = _busiest_device(trace)
    if len(rows) == 0:
        steps = len(trace.steps)
        return TimeClasses(
            "",
            {name: Union.empty() for name in CLASSES},
            Union.empty(),
            trace.steps.start,
            trace.steps.end,
            np.zeros((steps, len(CLASSES)), np.int64),
            False,
            0,
            Union.empty(),
            {},
        )

    event = trace.device_work[rows]
    start, end = trace.start[event], trace.end[event]
    launch = trace.links.launch[rows]
    communication = communicating[rows]
    copying = trace.kind[event] != Kind.KERNEL

    compute_ops = ~communication & ~copying
    compute = union(start[compute_ops], end[compute_ops])
    spinning = union(start[communication], end[communication])
    busy = merge(compute, spinning, union(start[copying], end[copying]))

    blocking = _blocking_copy_calls(trace, host, rows)
    # A copy that waits for a collective to end moves nothing yet.
    sitting = subtract(union(trace.start[blocking], trace.end[blocking]), spinning)
    transfer = subtract(merge(union(start[copying], end[copying]), sitting), compute)

    ready_start, ready_launched = _next_work(trace, start[~communication], launch[~communication], blocking)
    low = min(int(start.min()), int(trace.steps.start.min()))
    high = max(int(end.max()), int(trace.steps.end.max()))
    gaps = subtract(Union(np.array([low]), np.array([high])), merge(compute, transfer))
    waiting_for_host, untold = host_part(gaps, ready_start, ready_launched, int(end.max()))

    leaks, leak_until = _head(trace, host, rows, launch)
    requests = host.stalls.request
    stalls = union(trace.start[requests], trace.end[requests])
    hosts = intersect(gaps, waiting_for_host)
    waits = _waits_of_launchers(trace, host, gaps, start[~communication], launch[~communication])
    for_collective, for_nothing = blocked_part(hosts, waits, spinning)
    reasons = {
        "stalls": stalls,
        "head": Union(np.array([low]), np.array([leak_until])) if leaks else Union.empty(),
        "lost": _after_lost_launch(trace, gaps),
        "unlinked": untold,
        "blocked": for_nothing,
    }
    reasons = {why: intersect(gaps, time) for why, time in reasons.items()}
    unknown = merge(*reasons.values())
    hosts = subtract(subtract(hosts, for_collective), unknown)
    rest = subtract(subtract(gaps, hosts), unknown)
    sets = {
        "compute": compute,
        "transfer": transfer,
        "host": hosts,
        "communication": intersect(rest, spinning),
        "dependency": subtract(rest, spinning),
        "unknown": unknown,
    }
    window_start, window_end = _windows(trace, event)
    of_step = np.stack([covered(sets[name], window_start, window_end) for name in CLASSES], axis=1)
    return TimeClasses(device, sets, busy, window_start, window_end, of_step, leaks, leak_until, stalls, reasons)


def _busiest_device(trace: Trace) -> tuple[np.ndarray, str]:
    """Rows of `device_work` on the device with the most work, in start order, and its ordinal."""
    work = trace.device_work
    if len(work) == 0:
        return np.empty(0, np.int64), ""
    process = trace["lanes"]["process"]
    of_lane = np.unique(process, return_inverse=True)
    device = of_lane[1][trace.lane[work]]
    total = np.bincount(device, weights=trace.duration[work])
    chosen = int(np.argmax(total))
    rows = np.flatnonzero(device == chosen)
    return rows[np.argsort(trace.start[work[rows]], kind="stable")], str(of_lane[0][chosen])


def _blocking_copy_calls(trace: Trace, host: Host, rows: np.ndarray) -> np.ndarray:
    """Calls in which a host thread waits for its own copy."""
    launch = trace.links.launch[rows]
    copies = distinct(launch[(launch >= 0) & (trace.kind[trace.device_work[rows]] == Kind.MEMCPY)], len(trace))
    return copies[host.waiting[copies]]


def _next_work(
    trace: Trace, start: np.ndarray, launch: np.ndarray, blocking: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start of everything that can end a gap, in order, and until when it was the host's fault; -1 where unknown.

    That is the launch's start plus the latency of a drained stream, or the launch's end where the call itself took
    longer (it loaded a module, say).
    """
    call = np.maximum(launch, 0)
    launched = np.maximum(trace.start[call] + LATENCY_NS, trace.end[call])
    starts = np.concatenate((start, trace.start[blocking]))
    launches = np.concatenate((np.where(launch >= 0, launched, -1), trace.start[blocking] + LATENCY_NS))
    order = np.argsort(starts, kind="stable")
    return starts[order], launches[order]


def host_part(gaps: Union, ready_start: np.ndarray, ready_launched: np.ndarray, last_end: int) -> tuple[Union, Union]:
    """The part of each gap in which the op that ends it was not launched yet; and gaps that end with an op whose launch
    is not in the trace."""
    if len(gaps.start) == 0 or len(ready_start) == 0:
        return Union.empty(), Union.empty()
    row = np.searchsorted(ready_start, gaps.end, side="left")
    ends_here = row < len(ready_start)
    launched = np.where(ends_here, ready_launched[np.minimum(row, len(ready_start) - 1)], -1)
    until = np.where(launched >= 0, np.minimum(launched, gaps.end), gaps.start)
    # Nothing follows: once the last device op is done, the host has launched nothing more.
    start = np.where(ends_here, gaps.start, np.maximum(gaps.start, last_end))
    untold = ends_here & (launched < 0)
    return union(start, np.where(ends_here, until, gaps.end)), union(gaps.start[untold], gaps.end[untold])


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
    line = np.where(ends, ready_line[np.minimum(row, len(ready_line) - 1)], -1) if len(ready_line) else row * 0 - 1
    parts = [
        intersect(Union(gaps.start[mine], gaps.end[mine]), time)
        for number, time in waits.items()
        if (mine := (line == number) | ~ends).any()
    ]
    return merge(*parts) if parts else Union.empty()


def _waits_of_launchers(trace: Trace, host: Host, gaps: Union, start: np.ndarray, launch: np.ndarray) -> Union:
    """When the thread that launches the work after a gap sat in a wait. `start` and `launch` of that work, in order."""
    calls = trace.links.calls("wait")
    calls = calls[host.waiting[calls] & (trace.duration[calls] > 0)]
    if not (trace.duration[calls] > _RETURN_NS).any():
        return Union.empty()
    marks = trace.steps.event[trace.steps.event >= 0]
    line_of_lane = line_of_lanes(trace, int(trace.lane[marks[0]]) if len(marks) else -1)
    line = line_of_lane[trace.lane[calls]]
    waits = {
        number: union(trace.start[calls[line == number]], trace.end[calls[line == number]])
        for number in np.unique(line).tolist()
    }
    of_work = np.where(launch >= 0, line_of_lane[trace.lane[np.maximum(launch, 0)]], -1)
    return waits_in_gaps(gaps, start, of_work, waits)


def _after_lost_launch(trace: Trace, gaps: Union) -> Union:
    """The part of each gap after a launch whose work is not in the trace: the device may have worked then."""
    if len(trace.links.launches) == 0:
        return Union.empty()
    lost = np.sort(trace.start[silent_launches(trace)])
    if len(lost) == 0:
        return Union.empty()
    row = np.searchsorted(lost, gaps.start)
    first = np.where(row < len(lost), lost[np.minimum(row, len(lost) - 1)], np.iinfo(np.int64).max)
    return union(np.minimum(first, gaps.end), gaps.end)


def _head(trace: Trace, host: Host, rows: np.ndarray, launch: np.ndarray) -> tuple[bool, int]:
    """Whether earlier work was still running when recording began, and until when the head is unknown."""
    event = trace.device_work[rows]
    orphans = trace.links.orphan[rows] == 1
    linked = np.flatnonzero(launch >= 0)
    if len(linked) == 0:
        return False, 0
    # What was launched first tells whether the device was still busy; a blocking copy runs inside its call and cannot.
    free = linked[~host.waiting[launch[linked]]]
    late = False
    if len(free):
        first = free[np.argmin(trace.start[launch[free]])]
        late = int(trace.start[event[first]]) - int(trace.end[launch[first]]) > _HEAD_WAIT_NS
    return bool(orphans.any() or late), int(trace.start[event[linked[0]]])


def _windows(trace: Trace, event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Device window of each step: from the end of the previous step's last device op to the end of its own."""
    steps = trace.steps
    step = steps.of_event[event]
    finish = np.full(len(steps), -1, dtype=np.int64)
    inside = step >= 0
    np.maximum.at(finish, step[inside], trace.end[event[inside]])
    # A step without device work ends with its host window.
    end = np.where(finish >= 0, finish, steps.end)
    end = np.maximum.accumulate(end) if len(end) else end
    start = np.concatenate((steps.start[:1], end[:-1]))
    return np.minimum(start, end), end
