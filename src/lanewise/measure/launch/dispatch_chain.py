"""The dispatch chain of one step, from annotation to kernel, and the gaps before its first links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.host import Host
from lanewise.trace.groups import mask_of
from lanewise.trace.model import Trace
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import KINDS, Kind

__all__ = ["Chain", "Link", "dispatch_chain", "gap_table"]

_MAX_LINKS = 2_000


@dataclass(frozen=True)
class Link:
    """One link of a chain.

    Attributes:
        event: event id.
        depth: nesting below the step.
        kind, name: as recorded.
        start_ns: start, from the start of the step's first host event.
        duration_ns: duration.
        gap_ns: time since the previous sibling ended, or since the parent began for a first child.
        role: API role for calls, "" otherwise.
        delay_ns: for device work, start less the start of its launch; -1 otherwise.
        lane: row of `lanes`.
    """

    event: int
    depth: int
    kind: str
    name: str
    start_ns: int
    duration_ns: int
    gap_ns: int
    role: str
    delay_ns: int
    lane: int


@dataclass(frozen=True)
class Chain:
    """The dispatch chain of one step: links in preorder; device work follows the call that launched it."""

    step: int
    number: int
    links: tuple[Link, ...]
    omitted: int


def dispatch_chain(trace: Trace, host: Host, step: int, *, max_links: int = _MAX_LINKS) -> Chain:
    """The dispatch chain of the step in row `step` of `Trace.steps`, Python frames left out."""
    events = trace.of(Kind.ANNOTATION, Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
    events = events[trace.steps.of_event[events] == step]
    origin = int(trace.steps.start[step])
    # The thread that marks the step first, the others (autograd's, for example) after it.
    own_lane = int(trace.lane[trace.steps.event[step]]) if trace.steps.event[step] >= 0 else -1
    lane = np.where(trace.lane[events] == own_lane, -1, trace.lane[events])
    events = events[np.lexsort((host.depth[events], -trace.duration[events], trace.start[events], lane))]
    children = _work_of(trace, events)
    base = int(host.depth[events].min()) if len(events) else 0
    previous_end: dict[int, int] = {}
    links: list[Link] = []
    total = 0
    for event in events.tolist():
        work = children.get(event, ())
        total += 1 + len(work)
        if len(links) >= max_links:
            continue
        parent = int(host.parent[event])
        begin = int(trace.start[event])
        anchor = previous_end.get(parent, int(trace.start[parent]) if parent >= 0 else begin)
        previous_end[parent] = int(trace.end[event])
        depth = int(host.depth[event]) - base
        role = str(trace.links.role_of_name[trace.name[event]]) if trace.kind[event] in (3, 4) else ""
        links.append(
            Link(
                event,
                depth,
                KINDS[int(trace.kind[event])],
                trace.name_of(event),
                begin - origin,
                int(trace.duration[event]),
                max(0, begin - anchor),
                role,
                -1,
                int(trace.lane[event]),
            )
        )
        for device in work:
            start = int(trace.start[device])
            links.append(
                Link(
                    device,
                    depth + 1,
                    KINDS[int(trace.kind[device])],
                    trace.name_of(device),
                    start - origin,
                    int(trace.duration[device]),
                    0,
                    "",
                    max(0, start - begin),
                    int(trace.lane[device]),
                )
            )
    return Chain(step, int(trace.steps.number[step]), tuple(links), max(0, total - len(links)))


def _work_of(trace: Trace, calls: np.ndarray) -> dict[int, list[int]]:
    """Device work (event ids, in file order) of those of the given events that launched some."""
    rows = np.flatnonzero(np.isin(trace.links.launch, calls))
    work: dict[int, list[int]] = {}
    for event, launch in zip(trace.device_work[rows].tolist(), trace.links.launch[rows].tolist(), strict=True):
        work.setdefault(launch, []).append(event)
    return work


def gap_table(trace: Trace, host: Host) -> Columns:
    """Where each step's host time went before its first launch.

    Columns, ns from the start of the step, -1 where absent: `number`; `annotation_start`, `annotation_duration` (first
    user annotation inside the step); `first_dispatch` (first operator); `gap` (first dispatch less annotation start, or
    less the step's start); `first_launch` (first call that launches work); `before_launch` (from the start of the
    innermost operator to its launch); `first_delay` (first device op less its launch).
    """
    steps = trace.steps
    count = len(steps)
    columns = {
        name: np.full(count, -1, dtype=np.int64)
        for name in (
            "annotation_start",
            "annotation_duration",
            "first_dispatch",
            "gap",
            "first_launch",
            "before_launch",
            "first_delay",
        )
    }
    own = mask_of(len(trace), steps.event[steps.event >= 0])
    annotation = _first(trace, np.flatnonzero((trace.kind == Kind.ANNOTATION) & ~own), count)
    operator = _first(trace, trace.of(Kind.OPERATOR), count)
    launch_of = trace.links.launch
    launch = _first(trace, np.unique(launch_of[launch_of >= 0]), count)
    work_of_launch = _work_of(trace, launch[launch >= 0])
    inner = nearest(host.parent, trace.kind == Kind.OPERATOR, launch)
    for step in range(count):
        begin = int(steps.start[step])
        anchor = begin
        if annotation[step] >= 0:
            anchor = int(trace.start[annotation[step]])
            columns["annotation_start"][step] = anchor - begin
            columns["annotation_duration"][step] = trace.duration[annotation[step]]
        if operator[step] >= 0:
            columns["first_dispatch"][step] = trace.start[operator[step]] - begin
            columns["gap"][step] = max(0, int(trace.start[operator[step]]) - anchor)
        if launch[step] >= 0:
            call = int(launch[step])
            columns["first_launch"][step] = trace.start[call] - begin
            if inner[step] >= 0:
                columns["before_launch"][step] = trace.start[call] - trace.start[inner[step]]
            columns["first_delay"][step] = max(0, int(trace.start[work_of_launch[call]].min()) - int(trace.start[call]))
    return Columns({"number": steps.number, **columns})


def _first(trace: Trace, events: np.ndarray, count: int) -> np.ndarray:
    """Earliest of the given events in each step, or -1."""
    step = trace.steps.of_event[events]
    inside = step >= 0
    events, step = events[inside], step[inside]
    order = np.lexsort((-trace.duration[events], trace.start[events], step))
    result = np.full(count, -1, dtype=np.int64)
    rows, first = np.unique(step[order], return_index=True)
    result[rows] = events[order][first]
    return result
