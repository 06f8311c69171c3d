"""MEM101."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, of_step, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import CALL, COUNT, LONGEST, SITE, TOTAL, headed
from lanewise.report.quantity import share, time


@rule(
    "MEM101",
    "allocation-in-steady-state",
    title="{calls} {per} to the driver's memory allocator: {total}, {share} of the step as recorded.",
)
def allocation_in_steady_state(facts: Facts, *, share_from: float = 0.005) -> Outcome:
    """The program still calls the driver's allocator after it is warm.

    torch keeps memory that was freed and hands it out again without asking the driver. A driver call in a steady step
    means that no cached block fits. `cudaMalloc` takes a millisecond at times, and `cudaFree` waits for the whole
    device first.

    Costs: the calls, and what the device idles after a `cudaFree` until the next launch.

    Fix: warm up with the largest shape; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; no
    `torch.cuda.empty_cache()` in the loop; reuse pinned host buffers.

    Verify: no such calls in the steady steps.

    Silent: in the first steps, and for what torch's own allocator does.

    Source: PyTorch's memory management notes; HTA's AlexNet case.
    """
    trace, links = facts.trace, facts.trace.links
    if not trace.steps.recorded:
        return NotApplicable("without steps, warming up cannot be told from the steady state")
    calls = facts.steady_events(links.calls("allocate", "free"))
    if len(calls) == 0:
        return Clear("no driver allocations in steady steps")
    steps = facts.steady_count
    total = float(trace.duration[calls].sum()) / steps
    if total < share_from * facts.steps.step_ns:
        return Clear(f"driver allocations take {of_step(facts, total):.2%} of the step")
    places = sites(facts, calls)
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(places.label):
        mine = calls[places.of_event == at]
        rows.append(
            {
                "call": trace.name_of(int(places.example[at])),
                "site": label,
                "count": len(mine) / steps,
                "total": float(trace.duration[mine].sum()) / steps,
                "longest": float(trace.duration[mine].max()),
            }
        )
    rows.sort(key=lambda row: -row["total"])
    return Found(
        values={
            "calls": counted(len(calls) / steps, "call", "calls"),
            "per": per(facts),
            "total": time(total),
            "share": share(total / max(1.0, facts.steps.period_ns)),
        },
        change=remove(facts, calls),
        evidence=[table("Driver allocations", [CALL, SITE, COUNT, headed(TOTAL, "time"), LONGEST], rows)],
        location=locate(facts, int(calls[np.argmax(trace.duration[calls])])),
        events=calls.tolist(),
    )
