"""MEA108."""

from __future__ import annotations

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, share
from lanewise.trace.file.profiler_log import says_dropped
from lanewise.trace.health import Health


@rule(
    "MEA108",
    "device-records-missing",
    kind="validity",
    title="{missing} of {launches} launches have no device work in the trace ({share}): device totals are too low.",
)
def device_records_missing(facts: Facts, *, share_from: float = 0.02) -> Outcome:
    """The profiler lost device records: launches without work, or work without its launch.

    Device totals, the busy share and the regime then rest on part of the work.

    Costs: nothing in the program; the recording is incomplete.

    Fix: by cause. A second CUPTI client (another profiler, DCGM, a debugger) takes the records: stop it. Recording
    started without a schedule loses the first ones: use `schedule(..., warmup=1)`. A full record buffer: record fewer
    steps.

    Verify: launches and device ops balance in the health lines.

    Silent: for work at the head of the file that was launched before recording began (MEA111), for graph launches,
    which own many device ops each, and for launches under graph capture, which have none.

    Source: pytorch/pytorch#117935, pytorch/pytorch#192021, pytorch/kineto#996.
    """
    health = facts.health
    capped = [line for line in health.log_lines if says_dropped(line)]
    if health.launches == 0 and health.device_ops == 0:
        return NotApplicable("the trace holds neither launches nor device work")
    missing = health.lost + health.unlinked
    part = health.unmatched_share
    rows = [
        {"reason": "launches without device work", "count": health.launches_without_work},
        {"reason": "device ops without launch, at the head of the file (not counted)", "count": health.head_orphans},
        {"reason": "device ops without launch, elsewhere", "count": health.other_orphans},
        *({"reason": line, "count": 1} for line in capped),
    ]
    evidence = [table("Records", [TableColumn("reason", "text", "records"), headed(COUNT, "count")], rows)]
    values = {
        "unlinked": count(health.unlinked),
        "lost": count(health.lost),
        "missing": count(missing),
        "launches": count(health.launches),
        "share": share(min(1.0, part)),
        "device_ops": count(health.device_ops),
    }
    if health.device_ops == 0:
        return Found(
            values=values,
            evidence=evidence,
            title="{launches} launches were recorded and not one kernel, copy or set: the device's records are "
            "missing, and nothing can be said about the device.",
        )
    if health.launches == 0:
        return Found(
            values=values,
            evidence=evidence,
            title="{device_ops} device ops were recorded without a single launch: host rows are missing, so work "
            "cannot be attributed to operators or steps.",
        )
    if part > share_from:
        return Found(values=values, evidence=evidence, title=_title(health))
    if capped:
        return Found(
            values=values,
            evidence=evidence,
            title="The profiler's own log says that records were dropped; device totals may be too low.",
        )
    return Clear(f"{missing} of {health.launches:,} launches do not match up")


def _title(health: Health) -> str | None:
    if health.lost < health.unlinked:
        return (
            "{unlinked} of {launches} launches ({share}) and as many device ops are recorded, but nothing in the file "
            "links them: totals are complete; what launched the work, and when, is not known."
        )
    if health.other_orphans > health.launches_without_work:
        return "{lost} device ops have no launch in the trace: their operators, and when they were launched, are not known."
    return None
