"""OPT102."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.of_tree.tree_optimizer import measure_tree_optimizer
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.training.optimizer_step import FOREACH, OptimizerStep, OptimizerSums
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import COUNT, HOST, OPERATOR, SITE, headed
from lanewise.report.quantity import Quantity, count, share, time
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

_FUSED_HOST_NS = 1_000_000
_UNMARKED = NotApplicable("no optimizer step is marked in steady steps")


def _none(step: OptimizerSums, passes_from: int) -> Clear | None:
    """Why no fused implementation is missed here; None if one may be."""
    if step.fused:
        return Clear("the optimizer is fused")
    if step.foreach < passes_from:
        return Clear(f"{step.foreach:.0f} multi-tensor operators per optimizer step")
    return None


def _values(step: OptimizerSums, cost: float, part: float) -> dict[str, Quantity]:
    return {
        "passes": count(round(step.foreach)),
        "cost": time(cost),
        "share": share(part),
        "device": time(step.device_ns),
        "host": time(step.host_ns),
    }


def _of_tree(contexts: Contexts, *, passes_from: int, share_from: float) -> Outcome:
    step = measure_tree_optimizer(contexts)
    if step is None:
        return _UNMARKED
    if (none := _none(step, passes_from)) is not None:
        return none
    device_bound = contexts.regime == "compute"
    cost = step.device_ns if device_bound else step.host_ns
    part = step.device_ns / contexts.compute_ns if device_bound else contexts.of_step(step.host_ns)
    if part <= share_from:
        return Clear(f"the optimizer step is {part:.1%} of the {'device time' if device_bound else 'step'}")
    rows = np.flatnonzero(contexts.operators(FOREACH) & step.inside)
    host_kept = min(1.0, _FUSED_HOST_NS / max(1.0, step.host_ns))
    return Found(
        values=_values(step, cost, part),
        saves=contexts.saving(step.inside, kept=np.where(contexts.tree.leaf, 1 / step.foreach, host_kept)),
        evidence=[
            table(
                "Multi-tensor operators in the optimizer step",
                [headed(SITE, "operator"), COUNT, headed(HOST, "host time per step")],
                contexts.by_name(rows, count=contexts.calls[rows], host=contexts.inside(contexts.host)[rows]),
            )
        ],
        location=contexts.location(step.mark),
    )


@rule(
    "OPT102",
    "foreach-not-fused",
    of_tree=_of_tree,
    title="The optimizer makes {passes} passes over all parameters where a fused one makes one: {cost} per step, "
    "{share} of it.",
)
def foreach_not_fused(facts: Facts, *, passes_from: int = 3, share_from: float = 0.05) -> Outcome:
    """The optimizer runs several multi-tensor operators where one fused operator exists.

    `foreach` implementations call one operator per arithmetic step (multiply, add, root, divide), each over all
    parameters: each reads and writes all of them, and groups them in Python first. A fused implementation reads and
    writes everything once, in one operator.

    Costs: on the host the optimizer step less 1 ms; on the device all passes but one.

    Fix: `fused=True` (Adam, AdamW, SGD, Adagrad); check that it works with gradient scaling and your parallelism.

    Verify: a `_fused_*` operator in place of the `_foreach_*` ones, and the same loss.

    Silent: below three passes, below 5 % of the step (host-bound) or of the device time (device-bound), and where the
    fused kernel runs already.

    Source: torch/profiler/_pattern_matcher.py; 9.8 ms of host time for foreach against 1.1 ms fused on our H100.
    """
    step = facts.optimizer_step
    if step is None:
        return _UNMARKED
    if (none := _none(step, passes_from)) is not None:
        return none
    trace = facts.trace
    work = trace.device_work[np.isin(trace.links.launch, step.calls)]
    device_bound = facts.regime.name == "compute"
    if device_bound:
        total = float(facts.trace.duration[facts.steady_events(facts.trace.device_work)].sum()) / facts.steady_count
        cost, part = step.device_ns, step.device_ns / max(1.0, total)
    else:
        cost, part = step.host_ns, step.host_ns / max(1.0, facts.steps.period_ns)
    if part <= share_from:
        return Clear(f"the optimizer step is {part:.1%} of the {'device time' if device_bound else 'step'}")
    return Found(
        values=_values(step, cost, part),
        change=cheaper(step.marks, min(1.0, _FUSED_HOST_NS / max(1.0, step.host_ns)))
        + rescale(facts, work, 1 / step.foreach),
        spread=0.3,
        evidence=[
            table(
                "Multi-tensor operators in the optimizer step",
                [OPERATOR, COUNT, headed(HOST, "host time per step")],
                _operators(facts, step),
            )
        ],
        location=locate(facts, int(step.marks[0])),
        events=step.calls.tolist(),
    )


def _operators(facts: Facts, step: OptimizerStep) -> list[dict[str, object]]:
    trace, steps = facts.trace, facts.steady_count
    inside = mask_of(len(trace), step.marks)
    events = trace.of(Kind.OPERATOR)
    events = events[trace.name_mask(FOREACH)[trace.name[events]]]
    events = events[nearest(facts.host.parent, inside, events) >= 0]
    time_of = np.bincount(trace.name[events], weights=trace.duration[events], minlength=len(trace.names))
    number = np.bincount(trace.name[events], minlength=len(trace.names))
    return [
        {
            "operator": trace.names[int(n)],
            "count": round(float(number[n]) / steps, 1),
            "host": float(time_of[n]) / steps,
        }
        for n in np.argsort(-time_of, kind="stable")[:8].tolist()
        if number[n]
    ]
