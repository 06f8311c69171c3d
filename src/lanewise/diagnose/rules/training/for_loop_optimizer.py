"""OPT101."""

from __future__ import annotations

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.of_tree.tree_optimizer import measure_tree_optimizer
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import batch
from lanewise.measure.facts import Facts
from lanewise.measure.training.optimizer_step import OptimizerSums
from lanewise.report.evidence_columns import VALUE, WHAT, headed
from lanewise.report.model import TableBlock
from lanewise.report.quantity import count, time

_LAUNCHES_OF_FOREACH = 5
_UNMARKED = NotApplicable("no optimizer step is marked in steady steps")


def _none(step: OptimizerSums, per_parameter: float, launches_from: int) -> Clear | NeedsCapture | None:
    """Why this optimizer is no loop; None if it is one."""
    if step.fused or step.foreach or step.multi_tensor:
        return Clear("the optimizer handles many tensors per launch")
    if step.launches < launches_from:
        return Clear(f"{step.launches:.0f} launches per optimizer step")
    if not step.loop_frames and step.parameters == 0:
        return NeedsCapture("stacks (`with_stack=True`) or the backward pass: the number of parameters is not known")
    if not step.loop_frames and step.launches < per_parameter * step.parameters:
        return Clear(f"{step.launches:.0f} launches for {step.parameters:.0f} parameters")
    return None


def _evidence(step: OptimizerSums) -> TableBlock:
    rows = [{"what": "launches per step", "value": f"{step.launches:,.0f}"}]
    # Of these two the trace may know one only: without stacks there are no frames, without a backward pass no gradients.
    if step.parameters:
        rows.append({"what": "gradients accumulated per step", "value": f"{step.parameters:,.0f}"})
    if step.loop_frames:
        rows.append({"what": "frames of the for-loop implementation", "value": f"{step.loop_frames:,}"})
    return table("Optimizer step", [headed(WHAT, ""), VALUE], rows)


def _of_tree(contexts: Contexts, *, per_parameter: float, launches_from: int) -> Outcome:
    step = measure_tree_optimizer(contexts)
    if step is None:
        return _UNMARKED
    if (none := _none(step, per_parameter, launches_from)) is not None:
        return none
    kept = min(1.0, _LAUNCHES_OF_FOREACH / max(1.0, step.launches))
    return Found(
        values={"launches": count(round(step.launches)), "host": time(step.host_ns), "device": time(step.device_ns)},
        saves=contexts.saving(step.inside, kept=kept),
        confidence="high" if step.loop_frames else "medium",
        evidence=[_evidence(step)],
        location=contexts.location(step.mark),
    )


@rule(
    "OPT101",
    "for-loop-optimizer",
    of_tree=_of_tree,
    title="The optimizer walks its parameters one by one: {launches} launches and {host} of host time per step.",
)
def for_loop_optimizer(facts: Facts, *, per_parameter: float = 3.0, launches_from: int = 10) -> Outcome:
    """The optimizer step loops over the parameters in Python.

    For every parameter it calls several operators, each with its launch, on tensors that may be tiny. The multi-tensor
    and fused implementations handle all parameters with a handful of launches.

    Costs: the host time of the optimizer step, less the share that about five launches would take.

    Fix: `fused=True`, or `foreach=True` where there is no fused implementation; both are arguments of the torch
    optimizers.

    Verify: launches of the optimizer step.

    Silent: for multi-tensor and fused implementations, and below ten launches.

    Source: torch/profiler/_pattern_matcher.py, OptimizerSingleTensorPattern; pytorch/torchtitan pull request 881.
    """
    step = facts.optimizer_step
    if step is None:
        return _UNMARKED
    if (none := _none(step, per_parameter, launches_from)) is not None:
        return none
    return Found(
        values={"launches": count(round(step.launches)), "host": time(step.host_ns), "device": time(step.device_ns)},
        change=batch(facts, step.marks, step.calls, launches=_LAUNCHES_OF_FOREACH, steps=facts.steady_count),
        spread=0.2,
        confidence="high" if step.loop_frames else "medium",
        evidence=[_evidence(step)],
        location=locate(facts, int(step.marks[0])),
        events=step.calls.tolist(),
    )
