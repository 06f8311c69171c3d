"""MEA114."""

from __future__ import annotations

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.measure.validity.slow_steps import measure_slow_steps
from lanewise.report.evidence_columns import BUSY, PERIOD, STEP
from lanewise.report.quantity import count, share, text, time

_LONGEST_NAME = 80
_CAUSES = {
    "host": "the GPU waits for the host{name}",
    "compute": "the GPU computes longer{name}",
    "transfer": "copies take longer{name}",
    "communication": "communication takes longer{name}",
    "dependency": "launched work waits longer for other work{name}",
    "unknown": "the time goes where the trace does not show it{name}",
    "": "the time goes elsewhere than usual{name}",
}


@rule(
    "MEA114",
    "rare-slow-steps",
    kind="validity",
    title="{slow} of {steps} steps took {time} instead of {typical}, {share} of the whole time: in them {cause}.",
)
def rare_slow_steps(facts: Facts, *, share_from: float = 0.2) -> Outcome:
    """Some steps take far longer than the others.

    A checkpoint, an evaluation, a slow batch, garbage collection: what comes every tenth step is in no median. Where such
    steps come more than once, all steps count in the step time, the regime and the gains of this report; a single one is
    named here and left out there.

    Costs: what they take longer than the others.

    Fix: look into those steps: what they do that the others do not. Move it out of the loop, or to another thread.

    Verify: all steps take about as long.

    Silent: below 4 steady steps; where the slow steps hold less than 20 % of the time; for steps that compile (MEA106).

    Source: public bug reports: three of twelve steps held 83 % of the time, and a median called the run device-bound.
    """
    if not facts.trace.steps.recorded:
        return NotApplicable("the trace marks no steps")
    slow = measure_slow_steps(facts)
    if slow is None or slow.share < share_from:
        return Clear("no step takes far longer than the others")
    steps = facts.trace.steps
    name = f", in {slow.name[:_LONGEST_NAME]}" if slow.name else ""
    if slow.why == "host" and not name:
        name = ", in code that the trace does not show"
    rows = [
        {
            "step": int(steps.number[row]),
            "period": int(facts.steps.table["period"][row]),
            "busy": int(facts.steps.table["busy"][row]),
        }
        for row in slow.row.tolist()
    ]
    headings = [STEP, PERIOD, BUSY]
    return Found(
        values={
            "slow": count(len(slow.row)),
            "steps": count(len(slow.row) + slow.others),
            "time": time(slow.slow_ns),
            "typical": time(slow.typical_ns),
            "share": share(slow.share),
            "cause": text(_CAUSES[slow.why].format(name=name)),
        },
        evidence=[table("Slow steps", headings, rows, limit=12)],
        steps=slow.row.tolist(),
        location=locate(facts, slow.event) if slow.event >= 0 and slow.why in {"host", ""} else None,
    )
