"""MEA102."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.measure.launch.host_lanes import slice_around
from lanewise.measure.validity.first_step import LOADING_ROWS, overhead_rows
from lanewise.report.evidence_columns import INSIDE, ROW, STEP, TIME
from lanewise.report.quantity import count, share, time


@rule(
    "MEA102",
    "lazy-loading",
    kind="validity",
    title="Kernels are still being loaded in {steps} of the steady steps: {time} per step ({share}).",
)
def lazy_loading(facts: Facts, *, share_from: float = 0.01) -> Outcome:
    """CUDA loads kernels and modules in the middle of steps that should be warm.

    CUDA loads a kernel when it is launched for the first time. A kernel that first runs in a late step, because an
    input shape or a branch is new, makes that step pay for the load; the step then describes the load and not the
    program.

    Costs: the duration of the loading rows.

    Fix: run every shape and every branch before recording; `CUDA_MODULE_LOADING=EAGER` loads everything at start.

    Verify: no loading rows in the recording.

    Silent: below 1 % of the step, in the first recorded step (MEA101), and where compilation loads its own kernels
    (MEA106, CMP102).

    Source: libkineto's overhead rows; pytorch/pytorch pull request 155243; sgl-project/sglang pull request 35711.
    """
    trace = facts.trace
    rows = overhead_rows(facts, *LOADING_ROWS)
    if len(rows) == 0:
        return Clear("no loading rows; builds before CUDA 12.4 write none")
    if not trace.steps.recorded:
        return NotApplicable("the trace marks no steps, so warm steps cannot be told from the first")
    compiling = set(trace.steps.of_event[facts.compile_rows].tolist())
    rows = facts.steady_events(rows)
    rows = rows[~np.isin(trace.steps.of_event[rows], np.fromiter(compiling, np.int64))]
    per_step = float(trace.duration[rows].sum()) / facts.steady_count
    part = per_step / max(1.0, facts.steps.period_ns)
    if part <= share_from:
        return Clear(f"{part:.2%} of the step")
    longest = rows[np.argsort(-trace.duration[rows], kind="stable")]
    around = slice_around(facts, longest[:8])
    found = [
        {
            "row": trace.name_of(event),
            "step": int(trace.steps.number[trace.steps.of_event[event]]),
            "time": int(trace.duration[event]),
            "inside": trace.name_of(holder) if holder >= 0 else "",
        }
        for event, holder in zip(longest[:8].tolist(), around.tolist(), strict=True)
    ]
    affected = np.unique(trace.steps.of_event[rows])
    return Found(
        values={"steps": count(len(affected)), "time": time(per_step), "share": share(part), "rows": count(len(rows))},
        evidence=[table("Loading rows", [ROW, STEP, TIME, INSIDE], found)],
        steps=affected.tolist(),
    )
