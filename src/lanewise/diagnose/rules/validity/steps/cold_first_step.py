"""MEA101."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table, table_of
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.measure.regime.cold_calls import COLD_CALL_NS
from lanewise.measure.validity.first_step import causes_in_first_step
from lanewise.report.evidence_columns import (
    ANNOTATION_DURATION,
    ANNOTATION_START,
    CALL,
    CAUSE,
    FIRST_DISPATCH,
    HOST,
    OTHERS,
    START,
    TIME,
    headed,
)
from lanewise.report.model import TableBlock, TableColumn
from lanewise.report.quantity import ratio, share, text, time


@rule(
    "MEA101",
    "cold-first-step",
    kind="validity",
    title="The first recorded step took {first} on the host, {ratio} the others' {rest}. It is left out of all "
    "numbers; no loading, allocation or compile record in it explains why, so it is not called a cold start.",
)
def cold_first_step(facts: Facts, *, ratio_from: float = 1.5, cause_share: float = 0.1) -> Outcome:
    """The first recorded step holds work that happens once.

    Loading kernels, choosing library algorithms, growing the allocator and warming the CPU's caches all happen in the
    first calls. A mean over few steps that contains them describes no step at all. Even warm programs show it: the
    first step under a freshly started profiler took twice as long as the others with the program warm, three times with
    it cold, so the ratio alone does not prove a cold program. A cause is named only where a record in the trace shows
    one.

    Costs: once, the difference; nothing per step, because the step is left out.

    Fix: call the function three times and synchronise before profiling, and give the schedule `warmup=1` or more. For
    services, run every input shape once before traffic; `CUDA_MODULE_LOADING=EAGER` loads all kernels at start.

    Verify: record again: the first step takes less than 1.5x the others, and the step time without the profiler is
    unchanged.

    Silent: below 1.5x, and with fewer than three steps, where there is nothing to compare with. Without marked steps it
    speaks of single calls of the GPU's runtime only, which do nothing and take a tenth of the recording: starting the
    device.

    Source: huggingface/blog torch-profiler (the 227 us gap of its first step); 3.1x cold and 2.1x warm for one script
    on our H100.
    """
    steps = facts.trace.steps
    if not steps.recorded:
        return _cold_call(facts)
    if len(steps) < 3:
        return NeedsCapture(f"three or more steps: {len(steps)} recorded")
    duration = facts.steps.table["host_duration"]
    first, rest = float(duration[0]), float(np.median(duration[1:]))
    times = first / max(1.0, rest)
    if times <= ratio_from:
        return Clear(f"the first step took {times:.2f}x the others")

    excess = first - rest
    causes = [cause for cause in causes_in_first_step(facts) if cause.excess_ns >= cause_share * excess]
    values = {"first": time(first), "rest": time(rest), "ratio": ratio(times), "excess": time(excess)}
    evidence = [_gaps(facts)]
    title = fix = None
    if causes:
        main = causes[0]
        values |= {"cause": text(main.label), "cause_time": time(main.in_first_ns)}
        title = (
            "The first recorded step took {first} on the host, {ratio} the others' {rest}: {cause} took {cause_time} "
            "of it. It is left out of all numbers."
        )
        fix = main.fix or None
        rows = [{"cause": c.label, "first": c.in_first_ns, "others": c.in_others_ns, "rows": c.rows} for c in causes]
        evidence.insert(
            0,
            table(
                "What the records in the first step show",
                [
                    CAUSE,
                    TableColumn("first", "time", "in the first step"),
                    headed(OTHERS, "in the others (median)"),
                    TableColumn("rows", "count", "rows"),
                ],
                rows,
            ),
        )
    return Found(values=values, evidence=evidence, steps=[0], title=title, fix=fix)


_COLD_PART = 0.1


def _cold_call(facts: Facts) -> Outcome:
    """The call that starts the device, in a recording without marks."""
    trace, host = facts.trace, facts.host
    calls = trace.api_calls
    calls = calls[~host.waiting[calls] & (calls != host.profiler_sync)]
    length = float(trace.steps.end[0] - trace.steps.start[0])
    long = calls[trace.duration[calls] >= max(COLD_CALL_NS, _COLD_PART * length)]
    if len(long) == 0:
        return NotApplicable("the trace marks no steps")
    worst = int(long[np.argmax(trace.duration[long])])
    rows = [
        {"call": trace.name_of(event), "start": int(trace.start[event]), "time": int(trace.duration[event])}
        for event in long[np.argsort(trace.start[long])].tolist()
    ]
    return Found(
        values={
            "call": text(trace.name_of(worst)),
            "first": time(float(trace.duration[worst])),
            "share": share(float(trace.duration[worst]) / max(1.0, length)),
        },
        title="The recording holds the start of the device: {call} alone took {first}, {share} of it. A program pays "
        "that once; it drowns out the rest of this recording.",
        evidence=[table("Calls that start the device", [CALL, START, TIME], rows)],
        location=locate(facts, worst),
    )


def _gaps(facts: Facts) -> TableBlock:
    """Per step: where the time before the first launch went."""
    gaps = facts.gaps
    data = Columns({**{name: gaps[name] for name in gaps}, "host": facts.steps.table["host_duration"]})
    return table_of(
        "Before the first launch of each step",
        data,
        [
            TableColumn("number", "count", "step"),
            headed(HOST, "step on the host"),
            ANNOTATION_START,
            FIRST_DISPATCH,
            TableColumn("gap", "time", "gap between them"),
            TableColumn("before_launch", "time", "in the operator, before its launch"),
            TableColumn("first_launch", "time", "first launch"),
            ANNOTATION_DURATION,
        ],
    )
