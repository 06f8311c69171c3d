"""LAU108."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, ROW, TIME, headed
from lanewise.report.quantity import count, share, time
from lanewise.trace.intervals import union
from lanewise.trace.schema import Kind


@rule(
    "LAU108",
    "graph-rerecording",
    title="CUDA graphs are captured again in {steps} of {recorded} steps: {time} per step, {share} of it.",
)
def graph_rerecording(facts: Facts, *, steps_from: float = 0.5) -> Outcome:
    """Graphs are captured again and again instead of being replayed.

    Capturing runs the region without executing it, instantiating uploads it; both cost milliseconds. A graph pays only
    if it is replayed many times. New input shapes, changed addresses of static inputs and graph trees that branch cause
    another capture.

    Costs: the time of the capture rows.

    Fix: round shapes up to a few sizes, call `torch.compiler.cudagraph_mark_step_begin()` once per step, and leave
    regions with dynamic shapes out of graphs.

    Verify: only graph launches are left in steady steps.

    Silent: in warm-up, that is when fewer than half of the steps capture (MEA106).

    Source: PyTorch's documentation of CUDA-graph trees.
    """
    trace, steps = facts.trace, facts.trace.steps
    rows = trace.links.calls("graph_build")
    operators = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    recording = operators[trace.name_mask(r"^CUDAGraphNode\.record")[trace.name[operators]]] if len(operators) else rows
    rows = np.union1d(rows, recording)
    if len(rows) == 0:
        return NotApplicable("nothing is captured")
    if not steps.recorded or len(steps) < 2:
        return NotApplicable("the trace marks too few steps to tell warm-up from normal running")
    affected = np.unique(steps.of_event[rows])
    affected = affected[affected >= 0]
    if len(affected) < steps_from * len(steps):
        return Clear(f"{len(affected)} of {len(steps)} steps capture: warm-up (MEA106)")
    inside = facts.steady_events(rows)
    per_step = union(trace.start[inside], trace.end[inside]).total / facts.steady_count
    time_of = np.bincount(trace.name[inside], weights=trace.duration[inside], minlength=len(trace.names))
    number = np.bincount(trace.name[inside], minlength=len(trace.names))
    found = [
        {
            "row": trace.names[int(name)],
            "count": round(float(number[name]) / facts.steady_count, 1),
            "time": float(time_of[name]) / facts.steady_count,
        }
        for name in np.argsort(-time_of, kind="stable")[:8]
        if number[name]
    ]
    return Found(
        values={
            "steps": count(len(affected)),
            "recorded": count(len(steps)),
            "time": time(per_step),
            "share": share(per_step / max(1.0, facts.steps.period_ns)),
        },
        change=remove(facts, inside),
        evidence=[table("Capture rows", [ROW, COUNT, headed(TIME, "time per step")], found)] if found else [],
        steps=affected.tolist(),
        location=locate(facts, int(rows[0])),
        events=inside.tolist(),
    )
