"""OPT103."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.measure.launch.bubbles import LOADER, loader_rows
from lanewise.replay.change import overlap
from lanewise.report.evidence_columns import CALLS, ROW, SITE, STEP, TIME, headed
from lanewise.report.quantity import Quantity, share, text, time
from lanewise.trace.intervals import covered, intersect, union

_UP_TO = "The step waits up to {stall} for its next batch ({share}); {workers}."


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    loading = contexts.outermost(contexts.operators(LOADER))
    if not loading.any():
        return NotApplicable("no DataLoader in the recording")
    if not contexts.has_device:
        return NotApplicable("no device work that could wait")
    rows = np.flatnonzero(loading)
    spent = contexts.inside(contexts.host)[rows]
    # What the device is busy beside it does not wait for.
    stall = min(float(spent.sum()), contexts.shares.get("host", 1.0) * contexts.step.ns)
    part = contexts.of_step(stall)
    if part <= share_from:
        return Clear(f"the DataLoader takes {part:.1%} of the step")
    return Found(
        values={
            "stall": time(stall),
            "share": share(part),
            "workers": _who(contexts.name(row) for row in rows.tolist()),
        },
        title=_UP_TO,
        saves=contexts.saving(contexts.within(loading)),
        evidence=[
            table(
                "Loading batches",
                [headed(SITE, "row"), headed(CALLS, "batches"), TIME],
                contexts.by_site(rows, calls=contexts.calls[rows], time=spent),
            )
        ],
        location=contexts.location(int(rows[np.argmax(spent)])),
    )


def _who(names: Iterable[str]) -> Quantity:
    single = any("SingleProcess" in name for name in names)
    return text(
        "it is loaded in the same process, without workers" if single else "worker processes load it, but too slowly"
    )


@rule(
    "OPT103",
    "data-loader-stall",
    of_tree=_of_tree,
    title="The step waits {stall} for its next batch ({share}) while the device is idle; {workers}.",
)
def data_loader_stall(facts: Facts, *, share_from: float = 0.05) -> Outcome:
    """The device is idle because the next batch is not there yet.

    Reading, decoding and transforming the data takes longer than the step. Without workers it happens in the training
    loop itself; with too few, the loop waits for them.

    Costs: the time in the DataLoader during which the device waits.

    Fix: `num_workers` > 0 and a larger `prefetch_factor`, `persistent_workers=True`, `pin_memory=True`; cheaper or
    batched transforms, or decoding on the device.

    Verify: the DataLoader's share of the step.

    Silent: at 5 % of the step or less, and while the device is busy meanwhile.

    Source: TensorBoard's profiler plug-in.
    """
    trace, classes = facts.trace, facts.classes
    rows = loader_rows(facts)
    if len(rows) == 0:
        return NotApplicable("no DataLoader in the recording")
    if classes.device == "":
        return NotApplicable("no device work that could wait")
    idle = intersect(classes.sets["host"], union(trace.start[rows], trace.end[rows]))
    steady = facts.steps.steady
    stall = float(covered(idle, classes.window_start, classes.window_end)[steady].sum()) / facts.steady_count
    part = stall / max(1.0, facts.steps.period_ns)
    if part <= share_from:
        return Clear(f"the device waits {part:.1%} of the step for the DataLoader")
    inside = facts.steady_events(rows)
    shown = inside if len(inside) else rows
    steps = trace.steps
    found = [
        {
            "step": int(steps.number[steps.of_event[event]]) if steps.of_event[event] >= 0 else -1,
            "row": trace.name_of(event),
            "time": int(trace.duration[event]),
        }
        for event in shown.tolist()
    ]
    found.sort(key=lambda row: -int(row["time"]))
    return Found(
        values={
            "stall": time(stall),
            "share": share(part),
            "workers": _who(trace.name_of(event) for event in shown.tolist()),
        },
        change=overlap(inside),
        evidence=[table("Waiting for batches", [STEP, ROW, TIME], found)],
        location=locate(facts, int(shown[0])),
        events=shown.tolist(),
    )
