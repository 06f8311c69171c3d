"""SYN101."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_copies import tree_readbacks
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.readbacks import SMALL_BYTES, find_readbacks, host_events_inside
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, named, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, SITE, TOTAL, WAIT, headed
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, time
from lanewise.trace.intervals import covered
from lanewise.trace.schema import Kind

_GENERATION_TITLE = (
    "The stop test of the generation loop reads {values} {per} back from the GPU; the host stops {cost} for each."
)

_ONCE = "The host asks the GPU for {values} {per} and stops for {total}."
_UNEVEN = "The host asks the GPU for {values} {per} and stops for {total} in all, {longest} of it once."
# The times of all add up to so much more than as many typical ones.
_UNEVEN_FROM = 1.5


def _title(cost: np.ndarray, number: float) -> str | None:
    """The sentence that fits how long the host stops: once, or for times that differ much; None for times alike."""
    if number <= 1:
        return _ONCE
    return _UNEVEN if float(cost.mean()) > _UNEVEN_FROM * float(np.median(cost)) else None


def _of_tree(contexts: Contexts, *, per_step_from: float) -> Outcome:
    if not contexts.has_device:
        return NotApplicable("the tree holds no device work")
    found = tree_readbacks(contexts)
    found = found.of(~found.by_shape)
    number = float(found.number.sum())
    if number < contexts.least(per_step_from):
        return Clear(f"{number:.1f} readbacks {contexts.per}" if number else "the host reads no device values")
    total = float(found.host.sum())
    return Found(
        values={
            "values": counted(number, "value", "values"),
            "count": count(round(number, 1)),
            "per": contexts.per,
            "cost": time(total / number),
            "total": time(total),
        },
        saves=contexts.blocking(found.root),
        evidence=[
            table(
                "Readbacks",
                [headed(SITE, "read by"), headed(COUNT, "times"), TOTAL],
                contexts.by_site(found.root, count=found.number, total=found.host),
            ),
            TextBlock("While these reads remain, the code around them cannot be captured in a CUDA graph (LAU106)."),
        ],
        location=contexts.location(int(found.root[np.argmax(found.host)])),
    )


@rule(
    "SYN101",
    "device-readback",
    of_tree=_of_tree,
    title="The host asks the GPU for {values} {per} and stops for {cost} each time ({total} in all).",
)
def device_readback(facts: Facts, *, per_step_from: float = 1.0) -> Outcome:
    """The host waits for the device to hand over a value: `.item()`, `bool(tensor)`, `.tolist()`, a small `.cpu()`.

    Until the value arrives the host launches nothing, so the queue in front of the device runs empty and the device
    waits for the next launch in turn. It also keeps the code around it from being captured in a CUDA graph.

    Costs: the time of the calls that read and wait, less what the device computes meanwhile; where it had to be waited
    for, also what it idles afterwards until the next launch.

    Fix: keep the value on the device (`torch.where`, masks, comparing tensors), read it only every N steps, or copy it
    with `non_blocking=True` into pinned memory and look at it one step later. In a generation loop test for the end
    every N tokens.

    Verify: the number of readbacks per step falls.

    Silent: for values of CPU tensors (no copy, no wait: FSDP's optimizer makes hundreds), for operators whose output
    size depends on data (SYN102) and for large copies to the host (SYN103).

    Source: PyTorch's performance tuning guide; 50 readbacks cost 1.0 ms per step on our H100.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    found = find_readbacks(facts)
    small = found.scalar | ((found.bytes >= 0) & (found.bytes <= SMALL_BYTES))
    found = found.of(small & ~found.by_shape)
    steps = facts.steady_count
    number = len(found.root) / steps
    if number < per_step_from:
        return Clear(f"{number:.1f} readbacks per step" if number else "the host reads no device values")
    # What it waits for work from before the recording is no cost of the program.
    backlog = facts.classes.backlog
    before = np.clip((backlog.until if backlog.there else 0) - trace.start[found.root], 0, trace.duration[found.root])
    cost = trace.duration[found.root] - before
    waited = facts.host.wait_inside[found.root]
    end = trace.end[found.root]
    launches = np.sort(trace.start[facts.launches.call])
    following = np.searchsorted(launches, end)
    until = np.where(following < len(launches), launches[np.minimum(following, len(launches) - 1)], end)
    idle = covered(facts.classes.sets["host"], end, until)
    places = sites(facts, found.root)
    rows: list[dict[str, Any]] = [
        {
            "site": label,
            "count": int(at.sum()) / steps,
            "total": float(cost[at].sum()) / steps,
            "wait": float(waited[at].sum()) / steps,
            "after": float(idle[at].sum()) / steps,
        }
        for label, at in ((label, places.of_event == i) for i, label in enumerate(places.label))
    ]
    rows.sort(key=lambda row: -row["total"])
    tokens = len(facts.steady_events(named(facts, (Kind.OPERATOR,), "aten::argmax", "aten::multinomial"))) / steps
    fed_back = len(facts.steady_events(named(facts, (Kind.OPERATOR,), "aten::embedding"))) / steps
    total = float(cost.sum()) / steps
    return Found(
        values={
            "values": counted(number, "value", "values"),
            "count": count(round(number, 1)),
            "per": per(facts),
            "cost": time(float(np.median(cost))),
            "total": time(total),
            "longest": time(float(cost.max())),
        },
        # What is chosen is looked up for the next token; a detector chooses, too, and looks nothing up.
        title=_GENERATION_TITLE if 2 <= tokens <= min(number, fed_back + 1) else _title(cost, number),
        change=remove(facts, found.root),
        evidence=[
            table(
                "Readbacks per step",
                [
                    headed(SITE, "read by"),
                    headed(COUNT, "times"),
                    TOTAL,
                    WAIT,
                    TableColumn("after", "time", "device idle afterwards"),
                ],
                rows,
            ),
            TextBlock("While these reads remain, the code around them cannot be captured in a CUDA graph (LAU106)."),
        ],
        location=locate(facts, int(found.root[np.argmax(cost)])),
        events=np.concatenate((found.root, host_events_inside(facts, found.root))).tolist(),
    )
