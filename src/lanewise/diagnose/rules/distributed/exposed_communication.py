"""DIS101."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, of_step, per
from lanewise.measure.distributed.ranks import collectives
from lanewise.measure.facts import Facts
from lanewise.replay.change import shorten
from lanewise.report.evidence_columns import BYTES, COUNT, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time
from lanewise.trace.intervals import covered, subtract, union

# Above this the ends of matched collectives contradict each other: they are not the same ones.
_CLOCK_SPREAD_NS = 1_000_000


@rule(
    "DIS101",
    "exposed-communication",
    title="{collectives} {per} without overlapping computation: data moves for {exposed}, {share} of the step; "
    "computation hides {hidden} of the transfer.",
)
def exposed_communication(facts: Facts, *, share_from: float = 0.10) -> Outcome:
    """Data travels between the ranks and nothing is computed meanwhile.

    Gradients can travel while earlier layers are still in their backward pass, and parameters can be fetched before
    they are needed. What is left over shows as time in which the device only communicates.

    Costs: the exposed part of the transfer. How long a collective's data needs is the shortest of the ranks' durations;
    the rest is waiting for a late rank (DIS102).

    Fix: bucket size and order (DDP's `bucket_cap_mb`, gradients in the order of the backward pass), `no_sync` for
    accumulation steps, prefetching in FSDP, communication on its own stream.

    Verify: the hidden share rises, the step gets shorter.

    Silent: for waiting, which no overlap removes.

    Source: TensorBoard's distributed view; HTA's communication overlap.
    """
    if not facts.is_family("communication").any():
        return NotApplicable("the trace holds no collectives")
    alone = facts.steps.class_ns.get("communication", 0.0)
    if alone < share_from * facts.steps.step_ns:
        return Clear(f"communication runs alone for {of_step(facts, alone):.1%} of the step")
    ranks = facts.ranks
    if ranks is None:
        return NeedsCapture(
            "the traces of the other ranks, recorded over the same steps: one rank alone cannot tell moving data from "
            "waiting for a late rank"
        )
    if ranks.clock_spread > _CLOCK_SPREAD_NS or not ranks.steady.any():
        return NeedsCapture("traces of all ranks over the same steps: the collectives of these do not match")
    trace = facts.trace
    event, transfer = ranks.event[ranks.steady, 0], ranks.shortest[ranks.steady]
    end = trace.end[event]
    moving = union(end - transfer, end)
    exposed_set = subtract(subtract(moving, facts.classes.sets["compute"]), facts.classes.sets["transfer"])
    steps = facts.steady_count
    exposed = exposed_set.total / steps
    if exposed < share_from * facts.steps.step_ns:
        return Clear(f"data moves unhidden for {of_step(facts, exposed):.1%} of the step, the rest is waiting")
    found = collectives(facts)
    order = np.argsort(found.event)
    bytes_of = found.bytes[order[np.searchsorted(found.event[order], event)]]
    alone_of = covered(exposed_set, end - transfer, end)
    sizes = np.unique(bytes_of)
    rows: list[dict[str, Any]] = [
        {
            "bytes": int(size),
            "count": int((bytes_of == size).sum()) / steps,
            "transfer": float(transfer[bytes_of == size].sum()) / steps,
            "exposed": float(alone_of[bytes_of == size].sum()) / steps,
        }
        for size in sizes.tolist()
    ]
    rows.sort(key=lambda item: -item["exposed"])
    call = int(found.call[order[np.searchsorted(found.event[order], event[np.argmax(alone_of)])]])
    return Found(
        values={
            "collectives": counted(len(event) / steps, "collective", "collectives"),
            "per": per(facts),
            "exposed": time(exposed),
            "share": share(of_step(facts, exposed)),
            "hidden": share(1 - exposed_set.total / max(1, moving.total)),
        },
        change=shorten(event, np.maximum(trace.duration[event] - alone_of, 0)),
        bound=True,
        evidence=[
            table(
                "Collectives by size",
                [
                    headed(BYTES, "message"),
                    COUNT,
                    TableColumn("transfer", "time", "transfer"),
                    TableColumn("exposed", "time", "of it exposed"),
                ],
                rows,
            )
        ],
        location=locate(facts, call),
        events=event.tolist(),
    )
