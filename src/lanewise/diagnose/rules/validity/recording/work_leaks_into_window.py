"""MEA111."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import kernel_label, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import START, TIME
from lanewise.report.model import TableColumn
from lanewise.report.quantity import time


@rule(
    "MEA111",
    "work-leaks-into-window",
    kind="validity",
    title="When recording began the device was still busy with earlier steps: {orphans} without a launch, and {head} "
    "until the first recorded op could start. That time is neither idle nor this step's.",
)
def work_leaks_into_window(facts: Facts) -> Outcome:
    """Device work of steps before the recording runs at its start.

    The host runs ahead of the device; when recording starts, earlier work may still be queued. Part of it is recorded
    without its launch, part not at all. The device then looks idle although it is busy, and tables that add up every
    kernel count work of steps that were never recorded.

    Costs: nothing; the head of the recording is of class unknown, and those device ops belong to no step.

    Fix: `torch.cuda.synchronize()` between the warm-up steps and the first recorded one.

    Verify: no device op without a launch is left at the head.

    Silent: for work without a launch anywhere else (MEA108).

    Source: discussion in pytorch/pytorch pull request 168920; a matrix product on our H100 whose first recorded kernel
    started 2.1 ms late. Adding up every kernel inflated one table by 23 %.
    """
    trace, classes = facts.trace, facts.classes
    if classes.device == "":
        return NotApplicable("no device work")
    if not classes.backlog.there:
        return Clear("the device was idle when recording began")
    orphans = trace.device_work[trace.links.orphan == 1]
    begin = int(trace.steps.start[0])
    head = max(0, classes.backlog.until - begin)
    rows = [
        {"work": kernel_label(facts, event), "start": int(trace.start[event]), "time": int(trace.duration[event])}
        for event in orphans[np.argsort(trace.start[orphans], kind="stable")].tolist()
    ]
    title = None
    if len(orphans) == 0:
        title = (
            "When recording began the device was still busy with earlier steps: the first recorded op waited {head} "
            "although it was launched at once. That time is neither idle nor this step's."
        )
    return Found(
        values={
            "orphans": counted(len(orphans), "device op", "device ops"),
            "head": time(head),
            "orphan_time": time(float(trace.duration[orphans].sum())),
        },
        evidence=[
            table(
                "Device work launched before the recording",
                [TableColumn("work", "text", "device op"), START, TIME],
                rows,
            )
        ]
        if rows
        else [],
        steps=[0] if trace.steps.recorded else (),
        title=title,
    )
