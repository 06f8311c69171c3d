"""MEA101."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import table, table_of
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.measure.validity.first_step import causes_in_first_step
from lanewise.report.model import TableBlock
from lanewise.report.quantity import ratio, text, time


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

    Silent: below 1.5x, and with fewer than three steps, where there is nothing to compare with.

    Source: huggingface/blog torch-profiler (the 227 us gap of its first step); 3.1x cold and 2.1x warm for one script
    on our H100.
    """
    steps = facts.trace.steps
    if not steps.recorded:
        return NotApplicable("the trace marks no steps")
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
                {
                    "cause": ("text", "cause"),
                    "first": ("time", "in the first step"),
                    "others": ("time", "in the others (median)"),
                    "rows": ("count", "rows"),
                },
                rows,
            ),
        )
    return Found(values=values, evidence=evidence, steps=[0], title=title, fix=fix)


def _gaps(facts: Facts) -> TableBlock:
    """Per step: where the time before the first launch went."""
    gaps = facts.gaps
    data = Columns({**{name: gaps[name] for name in gaps}, "host": facts.steps.table["host_duration"]})
    return table_of(
        "Before the first launch of each step",
        data,
        {
            "number": ("count", "step"),
            "host": ("time", "step on the host"),
            "annotation_start": ("time", "annotation starts"),
            "first_dispatch": ("time", "first operator"),
            "gap": ("time", "gap between them"),
            "before_launch": ("time", "in the operator, before its launch"),
            "first_launch": ("time", "first launch"),
            "annotation_duration": ("time", "annotation lasts"),
        },
    )
