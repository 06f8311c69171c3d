"""Communication of one rank: collectives by group and order, and what it sent to and received from others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.measure.distributed.own.own_host_work import host_collectives
from lanewise.measure.distributed.ranks import collectives, message_bytes, rank_of
from lanewise.trace.intervals import covered
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Communication", "communications"]

_POINT_TO_POINT = re.compile(r"(?:^|[:_])(send|recv)", re.IGNORECASE)


class Communication(NamedTuple):
    """One collective or transfer as a rank saw it.

    Attributes:
        name: of the collective, `send` or `recv`.
        group: name of the process group. source, target: ranks of a transfer, -1 if unknown or for a collective.
        step: number of the step. bytes: of the whole message, as nccl-tests counts: of a gather what is received, of a
            reduce-scatter what is sent; -1 if unknown.
        arrival: when the rank was there: its kernel began, or on the CPU its call; ns of the trace.
        end: ns of the trace.
        hidden: in how much of that the device computes beside it, ns; -1 without a device.
        size: ranks of the group, -1 if unknown. about: what the program calls the group, "" if nothing.
    """

    name: str
    group: str
    source: int
    target: int
    step: int
    bytes: int
    arrival: int
    end: int
    hidden: int = -1
    size: int = -1
    about: str = ""


def communications(core: Core) -> list[Communication]:
    """Communication of the recorded steps in order of arrival."""
    on_device = sorted((*_by_kernel(core), *_by_call(core)), key=lambda one: one.arrival)
    if on_device:
        start, end = (np.array([getattr(one, name) for one in on_device]) for name in ("arrival", "end"))
        hidden = covered(core.classes.sets["compute"], start, end).tolist()
        on_device = [one._replace(hidden=int(beside)) for one, beside in zip(on_device, hidden, strict=True)]
    return sorted((*on_device, *_on_cpu(core)), key=lambda one: one.arrival)


def _step(core: Core, event: int) -> int:
    row = int(core.trace.steps.of_event[event])
    return int(core.trace.steps.number[row]) if row >= 0 else -1


def _by_kernel(core: Core) -> list[Communication]:
    trace = core.trace
    one = collectives(core)
    groups = _groups(core)
    found: list[Communication] = []
    for event, (group, name, _, _), size in zip(one.event.tolist(), one.key, one.bytes.tolist(), strict=True):
        if _POINT_TO_POINT.search(name) or (not group and name == "SendRecv"):
            continue
        ranks, about = groups.get(event, (-1, ""))
        start, end = int(trace.start[event]), int(trace.end[event])
        found.append(Communication(name, group, -1, -1, _step(core, event), size, start, end, size=ranks, about=about))
    return found


def _groups(core: Core) -> dict[int, tuple[int, str]]:
    """Size and description of the group by event."""
    args, texts = core.trace["collective_args"], core.trace.texts
    columns = (args[name].tolist() for name in ("event", "group_size", "description_text"))
    return {event: (size, str(texts[row])) for event, size, row in zip(*columns, strict=True)}


def _by_call(core: Core) -> list[Communication]:
    """Transfers between two ranks, whose kernels carry no arguments: each is the next one that its thread launches."""
    trace = core.trace
    args = trace["collective_args"]
    texts = trace.texts
    me = rank_of(core)
    rows = [
        row
        for row in np.flatnonzero(trace.kind[args["event"]] == Kind.OPERATOR).tolist()
        if _POINT_TO_POINT.match(str(texts[int(args["collective_text"][row])]))
    ]
    if not rows:
        return []
    spinning = np.flatnonzero(core.is_family("communication") & (trace.links.launch >= 0))
    launch, kernel = trace.links.launch[spinning], trace.device_work[spinning]
    order = np.argsort(trace.start[launch], kind="stable")
    launch, kernel = launch[order], kernel[order]
    found: list[Communication] = []
    for row in rows:
        event = int(args["event"][row])
        name = str(texts[int(args["collective_text"][row])]).lower()
        mine = np.flatnonzero((trace.lane[launch] == trace.lane[event]) & (trace.start[launch] >= trace.start[event]))
        work = int(kernel[mine[0]]) if len(mine) else event
        other = _global(str(texts[int(args["ranks_text"][row])]), int(args["rank"][row]))
        source, target = (me, other) if name.startswith("send") else (other, me)
        found.append(
            Communication(
                name="send" if name.startswith("send") else "recv",
                group=str(texts[int(args["group_text"][row])]),
                source=source,
                target=target,
                step=_step(core, event),
                bytes=message_bytes(str(texts[int(args["dtype_text"][row])]), int(args["in_elements"][row])),
                arrival=int(trace.start[work]),
                end=int(trace.end[work]),
                size=2,
                about=str(texts[int(args["description_text"][row])]),
            )
        )
    return found


def _global(ranks: str, rank: int) -> int:
    """The job's number of a group's rank."""
    try:
        members = json.loads(ranks)
    except ValueError:
        return rank
    if isinstance(members, list) and 0 <= rank < len(members) and isinstance(members[rank], int):
        return members[rank]
    return rank


def _on_cpu(core: Core) -> list[Communication]:
    trace = core.trace
    me = rank_of(core)
    found: list[Communication] = []
    for event in host_collectives(core).tolist():
        name = trace.name_of(event).partition(":")[2]
        start, end = int(trace.start[event]), int(trace.end[event])
        source = target = -1
        if name in ("send", "recv"):
            source, target = (me, -1) if name == "send" else (-1, me)
        found.append(Communication(name, "", source, target, _step_at(core, start), -1, start, end))
    return found


def _step_at(core: Core, time: int) -> int:
    steps = core.trace.steps
    row = int(np.searchsorted(steps.start, time, side="right")) - 1
    return int(steps.number[row]) if 0 <= row < len(steps.number) else -1
