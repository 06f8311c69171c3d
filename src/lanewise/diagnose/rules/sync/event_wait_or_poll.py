"""SYN106."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, of_step, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.replay.change import drop_wait
from lanewise.report.evidence_columns import CALL, COUNT, SITE, TOTAL, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

_DDP_TITLE = (
    "DDP's own runtime statistics wait for events for {total} {per} ({share} of the step); they are collected in early "
    "iterations only."
)


@rule(
    "SYN106",
    "event-wait-or-poll",
    title="{calls} {per} to wait for events, or to ask for their state, on a thread that launches work: {total} "
    "({share} of the step).",
)
def event_wait_or_poll(facts: Facts, *, share_from: float = 0.01, polls_from: int = 1000) -> Outcome:
    """A thread that should launch work waits for an event, or asks again and again whether it is done.

    Costs: the time of these calls on the threads that launch work.

    Fix: by owner. Timing code: read the events a few steps later. The caching allocator polls for tensors marked with
    `record_stream`: free them on the stream that used them. Own spinning: one wait instead of many queries.

    Verify: the sum of these calls falls.

    Silent: on threads that launch nothing, such as NCCL's watchdog.

    Source: HTA (25,773 polls in one trace); DDP's statistics waited 5.4 ms at a time on our H100.
    """
    trace, links = facts.trace, facts.trace.links
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    event_wait = links.calls("wait")
    event_wait = event_wait[trace.name_mask("[eE]vent")[trace.name[event_wait]]]
    dispatching = np.unique(trace.lane[facts.launches.call])

    def mine(calls: np.ndarray) -> np.ndarray:
        calls = facts.steady_events(calls)
        return calls[np.isin(trace.lane[calls], dispatching)]

    waits, polls = mine(event_wait), mine(links.calls("poll"))
    steps = facts.steady_count
    waited = float(trace.duration[waits].sum()) / steps
    many = len(polls) / steps > polls_from
    if waited < share_from * facts.steps.step_ns and not many:
        return Clear(
            f"event waits take {of_step(facts, waited):.1%} of the step, {len(polls) / steps:.0f} polls per step"
        )
    calls = np.concatenate((waits, polls)) if many else waits
    total = float(trace.duration[calls].sum()) / steps
    places = sites(facts, calls)
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(places.label):
        chosen = calls[places.of_event == at]
        rows.append(
            {
                "call": trace.name_of(int(places.example[at])),
                "site": label,
                "thread": str(trace["lanes"]["label"][trace.lane[chosen[0]]]),
                "count": len(chosen) / steps,
                "total": float(trace.duration[chosen].sum()) / steps,
            }
        )
    rows.sort(key=lambda row: -row["total"])
    ddp = trace.name_mask(r"^DistributedDataParallel\.forward")
    annotation = nearest(facts.host.parent, (trace.kind == Kind.ANNOTATION) & ddp[trace.name], waits)
    by_ddp = len(waits) > 0 and float(trace.duration[waits[annotation >= 0]].sum()) / steps > 0.9 * total
    return Found(
        values={
            "calls": counted(len(calls) / steps, "call", "calls"),
            "per": per(facts),
            "total": time(total),
            "share": share(of_step(facts, total)),
        },
        title=_DDP_TITLE if by_ddp else None,
        change=drop_wait(waits) + remove(facts, polls if many else polls[:0]),
        evidence=[
            table(
                "Event waits and polls",
                [CALL, SITE, TableColumn("thread", "text", "thread"), COUNT, headed(TOTAL, "time")],
                rows,
            )
        ],
        location=locate(facts, int(calls[np.argmax(trace.duration[calls])])),
        events=calls.tolist(),
    )
