"""MEA105."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.diagnose.evidence import per_step, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import VALUE, WHAT
from lanewise.report.quantity import count, ratio, time
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import Kind

_RANGE = (
    "Recording made the step {low} to {high} as long (steps vary): {recorded} instead of {unprofiled}. Recorded host times "
    "are too long by about that; shares leave it out."
)
_UNKNOWN = (
    "Steps vary too much to tell what recording did to them ({low} to {high} as long): record again while nothing else "
    "runs on the machine. They took {recorded} with the profiler, {unprofiled} without it; shares are no better known."
)


@rule(
    "MEA105",
    "profiler-distortion",
    kind="validity",
    title="Recording made the step {ratio} as long: {recorded} instead of {unprofiled}. Recorded host times are too long "
    "by about that; shares leave it out.",
)
def profiler_distortion(
    facts: Facts, *, ratio_from: float = 1.2, range_from: float = 1.5, noise_from: float = 3.0
) -> Outcome:
    """The profiler changed what it measured.

    Every recorded operator costs the host one to several microseconds more than without a profiler, with stacks and
    shapes several times that. Kernels take as long as before. So a program that waits for its host looks slower than it
    is, and more host-bound than it is; one that waits for its device is hardly affected.

    Where lanewise recorded, the ratio is the one it measured: over the steps after host times had settled, and without
    what a recorder does between two steps, which is no part of the program. Of another recording it is the median step
    of the trace over the time given by `--step-time`. The ratio is stated as a number only where its 95 % interval is
    narrower than 1.5x, and as a range up to 3x. Beyond that, or where the interval reaches down to 1, nothing is claimed:
    steps differ more by themselves than recording made them. Where nobody timed the step, it is computed by replaying the
    recording with what each recorded row costs taken off; `docs/numbers.md` says how well that works.

    Costs: nothing without a profiler. All shares and gains refer to the step without it.

    Fix: record without stacks and shapes when host time matters, and time the step without the profiler: `lanewise
    run` does both.

    Verify: the recorded step takes less than 1.2x the un-profiled one.

    Silent: below 1.2x. Device-bound steps stay there (0.97x to 1.0x on our H100). And where the recording holds the start
    of the program, the capture of a graph, or too little of the device's work to compute anything from.

    Source: pytorch/pytorch#82793; on our H100 1.1x to 2.2x for most host-bound steps, 3.1x with stacks, 3.4x for the
    replay of a 16 us graph and 5.6x for a single linear layer.
    """
    trace = facts.trace
    rows = per_step(facts, trace.of(Kind.OPERATOR))
    frames = per_step(facts, trace.of(Kind.PYTHON))
    health = facts.health
    evidence = [
        table(
            "What was recorded",
            [WHAT, VALUE],
            [
                {"what": "operator rows per step", "value": f"{rows:,.0f}"},
                {"what": "Python frames per step", "value": f"{frames:,.0f}"},
                {
                    "what": "options",
                    "value": ", ".join(
                        name
                        for name, on in (
                            ("shapes", health.shapes),
                            ("stacks", health.stacks),
                            ("memory", health.memory),
                        )
                        if on
                    )
                    or "none",
                },
            ],
        )
    ]
    if facts.unprofiled_ns:
        cost = _measured(facts, facts.unprofiled_ns)
        values = {
            "ratio": ratio(cost.ratio),
            "low": ratio(cost.low),
            "high": ratio(cost.high),
            "recorded": time(cost.recorded_ns),
            "unprofiled": time(facts.unprofiled_ns),
            "rows": count(round(rows)),
        }
        width = cost.high / max(cost.low, 1e-9)
        if width > noise_from or (cost.low <= 1 and cost.ratio > ratio_from):
            return Found(title=_UNKNOWN, values=values, evidence=evidence, confidence="low")
        if cost.ratio <= ratio_from:
            return Clear(f"the recorded step takes {cost.ratio:.2f}x the un-profiled one")
        return Found(title=_RANGE if width > range_from else None, values=values, evidence=evidence)
    if not facts.regime.measures_the_program:
        return NotApplicable("what the step takes without the profiler cannot be told from this recording")
    step = facts.unprofiled
    if step.distortion <= ratio_from:
        return Clear(f"without the profiler the step would be about {step.distortion:.2f}x shorter")
    return Found(
        title="Recording made the step longer, from about {step} ({low} to {high}, computed) to {recorded}. Shares and "
        "gains refer to the step without the profiler; `--step-time` makes them exact.",
        values={
            "step": time(step.step_ns),
            "low": time(step.low_ns),
            "high": time(step.high_ns),
            "recorded": time(facts.steps.period_ns or step.recorded_ns),
            "ratio": ratio(step.distortion),
            "rows": count(round(rows)),
        },
        evidence=evidence,
        confidence="medium",
    )


class _Cost(NamedTuple):
    """Recorded step time, ns; its ratio to the un-profiled one, and the 95 % interval of that or what stands for it."""

    recorded_ns: float
    ratio: float
    low: float
    high: float


def _measured(facts: Facts, unprofiled_ns: int) -> _Cost:
    """The recorder's own measurement where there is one, else that of the trace's steps."""
    recorded = from_metadata(facts.trace.metadata)
    if recorded is not None and recorded.distortion and recorded.profiled is not None and recorded.unprofiled_step_us:
        if unprofiled_ns == round(recorded.unprofiled_step_us * 1e3):
            times, low, high = recorded.distortion, recorded.distortion_low, recorded.distortion_high
            if low is None or high is None:
                # Too few samples for an interval: what the middle 60 % of them leave room for.
                before = recorded.unprofiled or recorded.profiled
                low = min(times, recorded.profiled.p20_us / before.p80_us)
                high = max(times, recorded.profiled.p80_us / before.p20_us)
            return _Cost(recorded.profiled.median_us * 1e3, times, low, high)
    period = facts.steps.table["period"][facts.steps.steady]
    low, high = np.quantile(period, (0.2, 0.8)) if len(period) else (facts.steps.period_ns,) * 2
    middle = facts.steps.period_ns
    return _Cost(middle, *(float(ns) / unprofiled_ns for ns in (middle, min(low, middle), max(high, middle))))
