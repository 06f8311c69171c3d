"""KER101."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, shapes_label, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import compute_ns, per
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.report.evidence_columns import COUNT, DURATION, KERNEL, OPERATOR, SHAPES, SHARE, SITE, TIME, headed
from lanewise.report.quantity import count, share, text, time


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    rows = np.flatnonzero(contexts.kernels)
    if len(rows) == 0:
        return NotApplicable("the tree holds no kernels")
    top = contexts.by_name(rows, count=contexts.count[rows], time=contexts.device[rows])
    of_compute = float(top[0]["time"]) / contexts.compute_ns
    if of_compute < share_from:
        return Clear(f"the largest kernel takes {of_compute:.0%} of the computing time")
    mine = rows[[contexts.name(row) == top[0]["site"] for row in rows.tolist()]]
    at = int(mine[np.argmax(contexts.device[mine])])
    above = int(contexts.tree.parent[at])
    return Found(
        values={
            "share": share(of_compute),
            "kernel": text(short_name(str(top[0]["site"]))),
            "total": time(float(top[0]["time"])),
            "operator": text(contexts.name(above) if above >= 0 else "no recorded operator"),
            "per": contexts.per,
            "count": count(round(float(top[0]["count"]), 1)),
        },
        evidence=[
            table(
                "Kernels",
                [headed(SITE, "kernel"), headed(COUNT, "kernels"), TIME],
                [{**row, "site": short_name(str(row["site"]))} for row in top[:5]],
            )
        ],
        confidence="medium",
        location=contexts.location(at),
    )


@rule(
    "KER101",
    "hotspot-kernel",
    of_tree=_of_tree,
    kind="statement",
    title="One kernel takes {share} of the GPU's computing time: {kernel} ({total} {per}, from {operator}).",
)
def hotspot_kernel(facts: Facts, *, share_from: float = 0.30) -> Outcome:
    """One kernel, at one launch configuration and one set of shapes, dominates the device's computing time.

    It says where to look, not that anything is wrong: whether the kernel can be faster is what the rules about the
    roofline (KER102, KER103), tensor cores (KER104), alignment (KER105) and grid (KER106) answer.

    Costs: nothing by itself.

    Fix: look at the findings about this kernel first; without them it is as fast as its kind gets.

    Verify: the kernel's share falls.

    Silent: for communication kernels, whose time is mostly waiting for other ranks.

    Source: huggingface/blog torch-profiler.
    """
    groups = facts.kernel_groups
    if not groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    total = sum(group.total for group in groups)
    steps = facts.steady_count
    top = groups[0]
    of_compute = top.total / steps / max(compute_ns(facts), total / steps)
    if of_compute < share_from:
        return Clear(f"the largest kernel takes {of_compute:.0%} of the computing time")
    trace = facts.trace
    rows = [
        {
            "kernel": kernel_label(facts, group.example),
            "operator": trace.name_of(group.operator) if group.operator >= 0 else "",
            "shapes": shapes_label(facts, group.operator),
            "count": len(group.rows) / steps,
            "duration": group.total / len(group.rows),
            "share": group.total / max(1, total),
        }
        for group in groups[:5]
    ]
    return Found(
        values={
            "share": share(of_compute),
            "kernel": text(kernel_label(facts, top.example)),
            "total": time(top.total / steps),
            "operator": text(trace.name_of(top.operator) if top.operator >= 0 else "no recorded operator"),
            "per": per(facts),
            "count": count(len(top.rows) / steps),
        },
        evidence=[
            table("Kernels", [KERNEL, OPERATOR, SHAPES, COUNT, DURATION, headed(SHARE, "share of kernel time")], rows)
        ],
        confidence="high" if facts.health.shapes else "medium",
        location=locate(facts, top.call),
    )
