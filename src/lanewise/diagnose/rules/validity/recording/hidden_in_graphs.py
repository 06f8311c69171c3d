"""MEA113."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, NODE, TIME, headed
from lanewise.report.quantity import count, share, time


@rule(
    "MEA113",
    "hidden-in-graphs",
    kind="validity",
    title="{share} of device time runs inside replayed graphs (up to {nodes} nodes per launch), which name no operator: "
    "operator tables cover only the rest.",
)
def hidden_in_graphs(facts: Facts, *, share_from: float = 0.1) -> Outcome:
    """The device time is inside replayed graphs, and a replay has no operators.

    One graph launch starts all kernels of the captured region. They carry its correlation id, but no operator, shape,
    stack or module: whatever a table says per operator, it says about the part outside.

    Costs: nothing; it limits what can be attributed.

    Fix: record the same program once without graphs (or its capture), and read that recording's operators against this
    one's kernels, in order. Newer builds of the profiler write `graph node id`, which helps.

    Verify: the share of device time with an operator rises.

    Silent: below 10 % of device time.

    Source: AMD-AGI/TraceLens#827, facebookresearch/HolisticTraceAnalysis#290.
    """
    trace, links = facts.trace, facts.trace.links
    if facts.health.graph_nodes == 0:
        return NotApplicable("no replayed graph")
    part = facts.health.graph_time_share
    if part <= share_from:
        return Clear(f"{part:.1%} of device time")
    nodes = trace.device_work[links.graph_nodes]
    launches = links.launch[links.graph_nodes]
    per_launch = links.device_count_of_launch[np.unique(launches)]
    time_of = np.bincount(trace.name[nodes], weights=trace.duration[nodes], minlength=len(trace.names))
    number_of = np.bincount(trace.name[nodes], minlength=len(trace.names))
    sample = {int(name): int(event) for name, event in zip(trace.name[nodes], nodes, strict=True)}
    rows = [
        {"node": kernel_label(facts, sample[name]), "count": int(number_of[name]), "time": float(time_of[name])}
        for name in np.argsort(-time_of, kind="stable")[:8].tolist()
        if number_of[name]
    ]
    return Found(
        values={
            "share": share(part),
            "launches": count(len(per_launch)),
            "nodes": count(int(per_launch.max())),
            "time": time(float(trace.duration[nodes].sum())),
        },
        evidence=[
            table(
                "Device work inside graphs",
                [headed(NODE, "device op"), headed(COUNT, "count"), TIME],
                rows,
            )
        ],
        location=locate(facts, int(launches[0])),
    )
