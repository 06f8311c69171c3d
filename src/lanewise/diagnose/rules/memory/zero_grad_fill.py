"""MEM105."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_sum, enclosing, host_cost, named, outermost, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.signatures import Tensor
from lanewise.report.quantity import time
from lanewise.trace.schema import Kind

FILLS = r"^aten::(_foreach_zero_|zero_|fill_)$"


def _of_tree(contexts: Contexts) -> Outcome:
    zeroing = contexts.outermost(contexts.operators(r"^Optimizer\.zero_grad#"))
    if not zeroing.any():
        return NotApplicable("no `Optimizer.zero_grad` in steady steps")
    fills = contexts.operators(FILLS) & contexts.within(zeroing) & (contexts.inside(contexts.count) > 0)
    outer = contexts.outermost(fills)
    if not outer.any():
        return Clear("`zero_grad` drops the gradients")
    adding = contexts.operators(r"^aten::add_$") & contexts.within(
        contexts.operators(r"torch::autograd::AccumulateGrad$")
    )
    gone = contexts.within(outer | adding)
    rows = np.flatnonzero(outer)
    return Found(
        values={
            "gradients": counted(float(contexts.calls[outer].sum()), "gradient or list", "gradients or lists"),
            "per": contexts.per,
            "device": time(float(contexts.device[gone].sum())),
            "host": time(float(contexts.host[gone].sum())),
        },
        saves=contexts.saving(gone),
        location=contexts.location(int(rows[0])),
    )


@rule(
    "MEM105",
    "zero-grad-fill",
    of_tree=_of_tree,
    title="zero_grad fills {gradients} {per} with zeros instead of dropping them; with what backward then adds to them, "
    "{device} on the GPU, {host} on the host.",
)
def zero_grad_fill(facts: Facts) -> Outcome:
    """Gradients are set to zero by a kernel, kept in memory, and then added to.

    Dropped gradients (`None`) are simply written by the next backward pass: no fill, no addition, no memory in between.

    Costs: the fills, and for each filled gradient the addition of the first backward pass to it (device-bound), or
    their launches (host-bound). Lists that were filled by one call count their additions where shapes were recorded.

    Fix: `optimizer.zero_grad(set_to_none=True)`, torch's default since 2.0.

    Verify: no `zero_` under `Optimizer.zero_grad`, no `add_` under `AccumulateGrad`.

    Silent: when nothing runs under `zero_grad`.

    Source: torch/profiler/_pattern_matcher.py (OptimizerSingleTensorPattern and GradNotSetToNonePattern).
    """
    trace, leaves = facts.trace, facts.leaves
    zeroing = np.flatnonzero((trace.kind == Kind.ANNOTATION) & trace.name_mask(r"^Optimizer\.zero_grad#")[trace.name])
    zeroing = outermost(facts, facts.steady_events(zeroing))
    if len(zeroing) == 0:
        return NotApplicable("no `Optimizer.zero_grad` in steady steps")
    fills = trace.name_mask(FILLS)[trace.name[leaves.operator]]
    mine = np.flatnonzero(fills & (enclosing(facts, zeroing, leaves.operator) >= 0))
    if len(mine) == 0:
        return Clear("`zero_grad` drops the gradients")
    rows = leaves.rows(mine)
    calls = trace.links.launch[rows]
    device_ns, host_ns = device_sum(facts, rows), host_cost(facts, calls)
    additions = _additions(facts)
    if len(additions):
        # With several backward passes per step only the first addition to each gradient goes away.
        part = min(1.0, _filled(facts, mine) / len(additions))
        added = leaves.rows(additions)
        device_ns += part * device_sum(facts, added)
        host_ns += part * host_cost(facts, trace.links.launch[added])
        gone = leaves.rows(additions[_first_of_steps(trace.steps.of_event[leaves.operator[additions]], part)])
        rows = np.concatenate((rows, gone))
    return Found(
        values={
            "gradients": counted(len(mine) / facts.steady_count, "gradient or list", "gradients or lists"),
            "per": per(facts),
            "device": time(device_ns),
            "host": time(host_ns),
        },
        change=remove(facts, trace.device_work[rows]),
        location=locate(facts, int(zeroing[0])),
        events=claim(facts, rows),
    )


def _additions(facts: Facts) -> np.ndarray:
    """Leaves that add a gradient of backward to one that is there already."""
    trace, operator = facts.trace, facts.leaves.operator
    accumulate = named(facts, (Kind.OPERATOR,), "torch::autograd::AccumulateGrad")
    adds = trace.name_mask(r"^aten::add_$")[trace.name[operator]]
    return np.flatnonzero(adds & (enclosing(facts, accumulate, operator) >= 0))


def _first_of_steps(step: np.ndarray, part: float) -> np.ndarray:
    """The first so many of each step, as a mask; `step` is in order."""
    begin = np.searchsorted(step, step)
    number = np.bincount(step, minlength=int(step.max(initial=0)) + 1)[step]
    return np.arange(len(step)) - begin < np.round(part * number)


def _filled(facts: Facts, fills: np.ndarray) -> int:
    """Number of gradients that the given leaves fill; a list of unknown length counts as none."""
    trace, operator = facts.trace, facts.leaves.operator[fills]
    lists = trace.name_mask("foreach")[trace.name[operator]]
    number = int(np.count_nonzero(~lists))
    for event in operator[lists].tolist():
        call = facts.signatures.of(event)
        first = call.inputs[0] if call and call.inputs else None
        number += len(first) if isinstance(first, tuple) and not isinstance(first, Tensor) else 0
    return number
