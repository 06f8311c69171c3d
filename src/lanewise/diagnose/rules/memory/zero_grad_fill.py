"""MEM105."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import in_steady_steps, locate, steady_count
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_sum, either_side, enclosing, host_cost, outermost, per
from lanewise.measure.facts import Facts
from lanewise.report.quantity import time
from lanewise.trace.schema import Kind


@rule(
    "MEM105",
    "zero-grad-fill",
    side="device",
    title="zero_grad fills {gradients} {per} with zeros ({device} on the GPU, {host} on the host) instead of "
    "dropping them.",
)
def zero_grad_fill(facts: Facts) -> Outcome:
    """Gradients are set to zero by a kernel, kept in memory, and then added to.

    Dropped gradients (`None`) are simply written by the next backward pass: no fill, no addition, no memory in between.

    Costs: the fills (device-bound), or their launches (host-bound).

    Fix: `optimizer.zero_grad(set_to_none=True)`, torch's default since 2.0.

    Verify: no `zero_` under `Optimizer.zero_grad`.

    Silent: when nothing runs under `zero_grad`.

    Source: torch/profiler/_pattern_matcher.py (OptimizerSingleTensorPattern and GradNotSetToNonePattern).
    """
    trace, leaves = facts.trace, facts.leaves
    zeroing = np.flatnonzero((trace.kind == Kind.ANNOTATION) & trace.name_mask(r"^Optimizer\.zero_grad#")[trace.name])
    zeroing = outermost(facts, in_steady_steps(facts, zeroing))
    if len(zeroing) == 0:
        return NotApplicable("no `Optimizer.zero_grad` in steady steps")
    fills = trace.name_mask(r"^aten::(_foreach_zero_|zero_|fill_)$")[trace.name[leaves.operator]]
    mine = np.flatnonzero(fills & (enclosing(facts, zeroing, leaves.operator) >= 0))
    if len(mine) == 0:
        return Clear("`zero_grad` drops the gradients")
    rows = leaves.rows(mine)
    calls = trace.links.launch[rows]
    device_ns, host_ns = device_sum(facts, rows), host_cost(facts, calls)
    side, gain = either_side(facts, device_ns=device_ns, host_ns=host_ns)
    return Found(
        values={
            "gradients": counted(len(rows) / steady_count(facts), "gradient or list", "gradients or lists"),
            "per": per(facts),
            "device": time(device_ns),
            "host": time(host_ns),
        },
        gain_ns=gain,
        side=side,
        location=locate(facts, int(zeroing[0])),
        claims=claim(facts, rows),
    )
