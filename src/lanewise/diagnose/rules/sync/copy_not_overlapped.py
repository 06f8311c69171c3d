"""SYN104."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.host_copies import host_copies
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, of_step, per
from lanewise.measure.facts import Facts
from lanewise.replay.change import move
from lanewise.report.evidence_columns import BYTES, COUNT, DIRECTION, TOTAL, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time
from lanewise.trace.intervals import covered, subtract, union


@rule(
    "SYN104",
    "copy-not-overlapped",
    title="{copies} {per} from or to pinned memory without overlapping computation: {exposed}, {share} of the step.",
)
def copy_not_overlapped(facts: Facts, *, share_from: float = 0.05, compute_from: float = 0.05) -> Outcome:
    """Copies could overlap with computation, because their memory is pinned, but computation waits for them.

    The copy engines work independently of the multiprocessors. A copy on the stream that computes, right before the
    kernels that need it, leaves them idle.

    Costs: the copies' exposed time, as far as there is computation to hide it behind.

    Fix: copy the next batch on a side stream while this one is computed, and let the compute stream wait for an event;
    call `record_stream` on what crosses streams.

    Verify: copies and kernels overlap on the timeline; the exposed time falls.

    Silent: for pageable copies, which block the host anyway (SYN103), and where a step computes for less than 5 % of its
    time: there is nothing to hide them behind.

    Source: PyTorch's tutorial on pinned memory.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    compute = facts.steps.class_ns.get("compute", 0.0)
    if compute < compute_from * facts.steps.step_ns:
        return NotApplicable("the step has no computation to hide copies behind")
    found = host_copies(facts)
    found = found.of(~found.pageable)
    events, size, direction = found.event, found.bytes, found.direction
    if len(events) == 0:
        return Clear("no copies from or to pinned memory in steady steps")
    exposed_set = subtract(union(trace.start[events], trace.end[events]), facts.classes.sets["compute"])
    steps = facts.steady_count
    exposed = exposed_set.total / steps
    if exposed < share_from * facts.steps.step_ns:
        return Clear(f"copies run alone for {of_step(facts, exposed):.1%} of the step")
    alone = covered(exposed_set, trace.start[events], trace.end[events])
    table_rows: list[dict[str, Any]] = []
    for way in np.unique(direction).tolist():
        mine = direction == way
        table_rows.append(
            {
                "direction": way,
                "count": int(mine.sum()) / steps,
                "bytes": float(np.maximum(size[mine], 0).sum()) / steps,
                "total": float(trace.duration[events[mine]].sum()) / steps,
                "alone": float(alone[mine].sum()) / steps,
            }
        )
    return Found(
        values={
            "copies": counted(len(events) / steps, "copy", "copies"),
            "per": per(facts),
            "exposed": time(exposed),
            "share": share(of_step(facts, exposed)),
        },
        change=move(events),
        evidence=[
            table(
                "Copies",
                [DIRECTION, COUNT, BYTES, headed(TOTAL, "time"), TableColumn("alone", "time", "of it not overlapped")],
                table_rows,
            )
        ],
        location=locate(facts, int(found.call[np.argmax(alone)])),
        events=claim(facts, found.row),
    )
