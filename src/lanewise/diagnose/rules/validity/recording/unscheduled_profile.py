"""MEA104."""

from __future__ import annotations

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import HOST, STEP, headed
from lanewise.report.quantity import count
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import Kind


@rule(
    "MEA104",
    "unscheduled-profile",
    kind="validity",
    title="Recording began at step #0: no wait, no warm-up. The first steps hold the profiler's own start-up.",
)
def unscheduled_profile(facts: Facts) -> Outcome:
    """The profiler recorded from the first step on, or without steps at all.

    Starting the profiler is work: it allocates buffers, subscribes to the driver and makes the first launches slow. A
    schedule lets it run for some steps whose records are thrown away (`warmup`). Without one, that start-up is in the
    recording; without step marks, warm and cold parts cannot be told apart.

    Costs: nothing per step; numbers of the first steps are wrong.

    Fix: `torch.profiler.schedule(wait=1, warmup=2, active=5)` and `prof.step()` at the end of every step; or
    `lanewise run SCRIPT`, which finds the steps itself.

    Verify: the first recorded step number is 2 or more.

    Silent: with the step marks of a serving engine, which records in the middle of its life.

    Source: pytorch/kineto#328, PyTorch's profiler documentation.
    """
    steps = facts.trace.steps
    if len(facts.trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER, Kind.ANNOTATION)) == 0:
        return NotApplicable("the trace holds no host rows")
    if steps.source == "serving":
        return Clear("steps are a serving engine's marks")
    recorded = from_metadata(facts.trace.metadata)
    if recorded is not None and recorded.warmup > 0:
        return Clear(f"the recorder warmed the profiler up for {recorded.warmup} step(s)")
    if not steps.recorded:
        return Found(
            values={"steps": count(0)},
            title="The recording has no step marks: warm-up and steady state cannot be told apart, and every number "
            "is over the whole recording.",
        )
    first = int(steps.number[0])
    if first > 0:
        return Clear(f"the first recorded step is #{first}")
    rows = [
        {"step": int(number), "host": int(duration)}
        for number, duration in zip(steps.number.tolist(), facts.steps.table["host_duration"].tolist(), strict=True)
    ]
    return Found(
        values={"steps": count(len(steps))},
        evidence=[table("Recorded steps", [STEP, headed(HOST, "on the host")], rows)],
        steps=[0],
    )
