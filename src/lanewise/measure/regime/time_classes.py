"""Where the time of each step went: the device computing, copying, communicating, or waiting, and for whom.

The classes are those of diagnoses.md section 1, disjoint, in this priority, and they sum to the step's period:

    compute        a kernel that is not communication runs
    transfer       a copy or set runs, or a host thread sits in a copy that blocks it
    host           the next compute or copy op is not launched yet, even if a communication kernel spins meanwhile;
                   plus the launch latency of a drained stream, and the time that a driver collects launches (Windows)
    communication  a communication kernel runs and the rest is already launched, or the host waits for that kernel
    dependency     launched, and waiting for an event, a stream or the queue
    unknown        the trace cannot tell: work launched before the recording, records that are lost, a wait for nothing
                   that was recorded, the profiler's own stalls; or it says nothing of how the program runs: the start of
                   the device, graphs that are captured and not run

A step's window on the device runs from the end of the previous step's last device op to the end of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.regime.backlog import Backlog, backlog_of
from lanewise.measure.regime.blocked import after_lost_launch, blocked_part, waits_of_launchers
from lanewise.measure.regime.cold_calls import start_up_calls
from lanewise.measure.regime.held import (
    copying_from,
    held_and_collected,
    what_ended_before,
)
from lanewise.trace.health import captures
from lanewise.trace.intervals import Union, covered, intersect, merge, subtract, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.host import Host
    from lanewise.trace.model import Trace

__all__ = ["CLASSES", "LATENCY_NS", "WORK", "TimeClasses", "classify_time", "host_part"]

CLASSES: tuple[str, ...] = ("compute", "transfer", "host", "communication", "dependency", "unknown")
WORK = frozenset({"compute", "transfer", "communication"})
"""Classes in which the device works; in the others it is idle, or the trace cannot tell."""

# A launch onto a drained stream takes this long at most before its work starts; longer is a dependency (typically 4 to
# 15 us on our H100, trace-format 9.6).
LATENCY_NS = 50_000


@dataclass(frozen=True, eq=False)
class TimeClasses:
    """Time classes of the busiest device.

    Attributes:
        device: ordinal of the device as text; "" if there is no device work.
        sets: the time of each class over the whole recording, by class name.
        busy: time in which any device op runs (kernels, copies and sets; annotations never).
        window_start, window_end: device window of each step, ns, shape (steps,).
        of_step: ns per step and class, shape (steps, len(CLASSES)).
        backlog: work of earlier, unrecorded steps at the head (MEA111).
        stalls: the profiler's buffer requests that blocked a host thread (MEA103).
        untold: the unknown time by why it is unknown: `head`, `stalls`, `unlinked`, `lost`, `blocked`, `start`, `capture`,
            `held`.
        collected: part of `host` in which work was launched and the driver had not handed it to the device.
    """

    device: str
    sets: dict[str, Union]
    busy: Union
    window_start: np.ndarray
    window_end: np.ndarray
    of_step: np.ndarray
    backlog: Backlog
    stalls: Union
    untold: dict[str, Union]
    collected: Union


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
            Backlog(),
            Union.empty(),
            {},
            Union.empty(),
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

    blocking, began = _blocking_copy_calls(trace, host, rows)
    # A copy that waits for a collective to end moves nothing yet.
    sitting = subtract(union(began, trace.end[blocking]), spinning)
    blocking = blocking[began == trace.start[blocking]]
    transfer = subtract(merge(union(start[copying], end[copying]), sitting), compute)

    work = trace.device_work
    explained = what_ended_before(start, trace.lane[event], trace.end[work], trace.lane[work])
    ready_start, ready_launched, explained = _next_work(
        trace, host, start[~communication], launch[~communication], explained[~communication], blocking
    )
    low = min(int(start.min()), int(trace.steps.start.min()))
    high = max(int(end.max()), int(trace.steps.end.max()))
    gaps = subtract(Union(np.array([low]), np.array([high])), merge(compute, transfer))
    waiting_for_host, untold = host_part(gaps, ready_start, ready_launched, int(end.max()))

    backlog = backlog_of(trace, host, rows)
    requests = host.stalls.request
    stalls = union(trace.start[requests], trace.end[requests])
    hosts = intersect(gaps, waiting_for_host)
    waits = waits_of_launchers(trace, host, gaps, start[~communication], launch[~communication])
    for_collective, for_nothing = blocked_part(hosts, waits, spinning)
    start_up = start_up_calls(trace, host)
    reasons = {
        "stalls": stalls,
        "start": union(trace.start[start_up], trace.end[start_up]),
        # Of many steps those that capture are left out, or they all do, and then that is what the program does.
        "capture": captures(trace) if len(trace.steps) == 1 else Union.empty(),
        "head": Union(np.array([low]), np.array([backlog.until])) if backlog.there else Union.empty(),
        "lost": after_lost_launch(trace, gaps),
        "unlinked": untold,
        "blocked": for_nothing,
    }
    reasons = {why: intersect(gaps, time) for why, time in reasons.items()}
    unknown = merge(*reasons.values())
    hosts = subtract(subtract(hosts, for_collective), unknown)
    rest = subtract(subtract(gaps, hosts), unknown)
    held, collected, waits_for_work = held_and_collected(trace, subtract(rest, spinning), ready_start, explained)
    reasons["held"], unknown, hosts = held, merge(unknown, held), merge(hosts, collected)
    sets = {
        "compute": compute,
        "transfer": transfer,
        "host": hosts,
        "communication": intersect(rest, spinning),
        "dependency": waits_for_work,
        "unknown": unknown,
    }
    window_start, window_end = _windows(trace, host, event, backlog)
    of_step = np.stack([covered(sets[name], window_start, window_end) for name in CLASSES], axis=1)
    return TimeClasses(device, sets, busy, window_start, window_end, of_step, backlog, stalls, reasons, collected)


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


def _blocking_copy_calls(trace: Trace, host: Host, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Calls in which a host thread waits for its own copy, and when each began to copy, ns."""
    launch = trace.links.launch[rows]
    event = trace.device_work[rows]
    mine = (launch >= 0) & (trace.kind[event] == Kind.MEMCPY)
    mine[mine] = host.waiting[launch[mine]]
    copies, first = np.unique(launch[mine], return_index=True)
    return copies, copying_from(trace, event[mine][first], trace.start[copies], trace.start[event[mine][first]])


def _next_work(
    trace: Trace, host: Host, start: np.ndarray, launch: np.ndarray, explained: np.ndarray, blocking: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start of everything that can end a gap, in order, and until when it was the host's fault; -1 where unknown. And
    whether it is known what each waited for in its queue.

    That is the launch's start plus the latency of a drained stream, or the launch's end where the call itself took
    longer (it loaded a module, say; a call that waits for its own work was done launching long before).
    """
    call = np.maximum(launch, 0)
    launched = trace.start[call] + np.maximum(LATENCY_NS, np.where(host.waiting[call], 0, trace.duration[call]))
    starts = np.concatenate((start, trace.start[blocking]))
    launches = np.concatenate((np.where(launch >= 0, launched, -1), trace.start[blocking] + LATENCY_NS))
    known = np.concatenate((explained, np.ones(len(blocking), dtype=bool)))
    order = np.argsort(starts, kind="stable")
    return starts[order], launches[order], known[order]


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


def _windows(trace: Trace, host: Host, event: np.ndarray, backlog: Backlog) -> tuple[np.ndarray, np.ndarray]:
    """Device window of each step: from the end of the previous step's last device op to the end of its own.

    What the host does after the last device op stands in the next step's window. A single step has no next one, and none
    before it: it lasts until the host is done, and begins once the device is free of what came before the recording.
    """
    steps = trace.steps
    step = steps.of_event[event]
    finish = np.full(len(steps), -1, dtype=np.int64)
    inside = step >= 0
    np.maximum.at(finish, step[inside], trace.end[event[inside]])
    # A step without device work ends with its host window.
    end = np.where(finish >= 0, finish, steps.end)
    end = np.maximum.accumulate(end) if len(end) else end
    start = np.concatenate((steps.start[:1], end[:-1]))
    if len(steps) == 1:
        end = np.maximum(end, host.done)
        start = np.maximum(start, backlog.until) if backlog.there else start
    return np.minimum(start, end), end
