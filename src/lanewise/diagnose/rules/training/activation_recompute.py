"""OPT105."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.checkpointing import without_checkpoints
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, OPERATOR, SITE, TIME, headed
from lanewise.report.quantity import share, time
from lanewise.tree.model import Phase


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    phase, tree = contexts.tree.phase, contexts.tree
    again = phase == Phase.RECOMPUTE
    forward = float(contexts.device[phase == Phase.FORWARD].sum())
    repeated = float(contexts.device[again].sum())
    if not contexts.has_device:
        return NotApplicable("the tree holds no device work")
    if not np.isin(phase, (Phase.BACKWARD, Phase.RECOMPUTE)).any():
        return NotApplicable("no backward pass in steady steps")
    part = repeated / max(1.0, forward)
    if part <= share_from:
        return Clear(f"{part:.0%} of the forward pass is repeated")
    rows = np.flatnonzero(again & contexts.operators(".") & (contexts.inside(contexts.device) > 0))
    rows = rows[~again[np.maximum(tree.parent[rows], 0)] | ~contexts.operators(".")[np.maximum(tree.parent[rows], 0)]]
    spent = contexts.inside(np.where(again, contexts.device, 0.0))[rows]
    return Found(
        values={"time": time(repeated), "share": share(part)},
        saves=contexts.saving(again),
        evidence=[
            table(
                "Repeated operators, by device time",
                [headed(SITE, "operator"), COUNT, headed(TIME, "device time per step")],
                contexts.by_name(rows, count=contexts.calls[rows], time=spent),
            )
        ],
        location=contexts.location(int(rows[np.argmax(spent)])) if len(rows) else None,
    )


@rule(
    "OPT105",
    "activation-recompute",
    of_tree=_of_tree,
    title="{time} of device time per step repeats forward work inside backward, {share} of the forward pass.",
)
def activation_recompute(facts: Facts, *, share_from: float = 0.25) -> Outcome:
    """Forward work runs a second time during backward: activation checkpointing.

    Checkpointing trades time for memory: activations are dropped and computed again when backward needs them. Where
    memory is not short, that time is given away.

    Costs: what is computed again, on the device and on the host; and on the host what setting up the regions takes: inputs
    and the state of the random numbers are kept, and Python is called for each tensor that an operator would save.

    Fix: checkpoint fewer layers, or selectively (`torch.utils.checkpoint` with a policy that keeps the expensive results),
    as far as memory allows. Larger regions are set up less often; without dropout `preserve_rng_state=False` spares the
    state of the random numbers.

    Verify: the recomputed share falls, and the peak of memory stays below the device's.

    Silent: at 25 % of the forward pass or less. Near the device's capacity it is the right trade (MEM102).

    Source: AMD-AGI/TraceLens.
    """
    backward = facts.backward
    if backward is None:
        return NotApplicable("no backward pass in steady steps")
    part = backward.recompute_ns / max(1, backward.total_forward_ns)
    if part <= share_from:
        return Clear(f"{part:.0%} of the forward pass is repeated")
    trace, steps = facts.trace, facts.steady_count
    calls = backward.recompute_calls
    owner = facts.host.outermost_operator[calls]
    operator = np.full(len(calls), -1, dtype=np.int64)
    rows_of = trace.links.operator
    launch = trace.links.launch
    first = np.searchsorted(np.sort(launch), calls)
    operator = rows_of[np.argsort(launch, kind="stable")[np.minimum(first, len(launch) - 1)]]
    label = trace.name[np.where(operator >= 0, operator, owner)]
    time_of = np.bincount(label, weights=facts.device_time_of_call[calls], minlength=len(trace.names))
    number = np.bincount(label, minlength=len(trace.names))
    rows = [
        {
            "operator": trace.names[int(n)],
            "count": round(float(number[n]) / steps, 1),
            "time": float(time_of[n]) / steps,
        }
        for n in np.argsort(-time_of, kind="stable")[:8].tolist()
        if number[n]
    ]
    return Found(
        values={"time": time(backward.recompute_ns / steps), "share": share(part)},
        change=without_checkpoints(facts, calls),
        evidence=[
            table("Repeated operators, by device time", [OPERATOR, COUNT, headed(TIME, "device time per step")], rows)
        ],
        location=locate(facts, int(calls[0])),
        events=calls.tolist(),
    )
