"""MEA105."""

from __future__ import annotations

from lanewise.diagnose.evidence import per_step, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.quantity import count, ratio, share, time
from lanewise.trace.metadata import from_metadata
from lanewise.trace.schema import Kind


@rule(
    "MEA105",
    "profiler-distortion",
    kind="validity",
    title="Recording made the step {ratio} as long: {recorded} with the profiler, {unprofiled} without it. "
    "Shares refer to the time without it; recorded host times are too long by about that factor.",
)
def profiler_distortion(
    facts: Facts, *, ratio_from: float = 1.2, cost_of_row_us: float = 2.0, likely_from: float = 0.2
) -> Outcome:
    """The profiler changed what it measured.

    Every recorded operator costs the host one to several microseconds more than without a profiler, with stacks and
    shapes several times that. Kernels take as long as before. So a program that waits for its host looks slower than it
    is, and more host-bound than it is; one that waits for its device is hardly affected.

    Where lanewise recorded, the ratio is the one it measured: over the steps after host times had settled, and without
    what a recorder does between two steps, which is no part of the program. Of another recording it is the median step
    of the trace over the time given by `--step-time`.

    Costs: nothing without a profiler. Where the step time without it is known, all shares refer to that, and the host's
    part is what shrinks.

    Fix: record without stacks and shapes when host time matters, and time the step without the profiler: `lanewise
    run` does both.

    Verify: the recorded step takes less than 1.2x the un-profiled one.

    Silent: below 1.2x. Device-bound steps stay there (0.97x to 1.0x on our H100).

    Source: pytorch/pytorch#82793; on our H100 1.1x to 2.2x for most host-bound steps, 3.1x with stacks, 3.4x for the
    replay of a 16 us graph and 5.6x for a single linear layer.
    """
    trace, steps = facts.trace, facts.steps
    rows = per_step(facts, trace.of(Kind.OPERATOR))
    frames = per_step(facts, trace.of(Kind.PYTHON))
    health = facts.health
    evidence = [
        table(
            "What was recorded",
            {"what": ("text", "what"), "value": ("text", "value")},
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
        recorded_ns, times = _measured(facts, facts.unprofiled_ns)
        if times <= ratio_from:
            return Clear(f"the recorded step takes {times:.2f}x the un-profiled one")
        return Found(
            values={
                "ratio": ratio(times),
                "recorded": time(recorded_ns),
                "unprofiled": time(facts.unprofiled_ns),
                "rows": count(round(rows)),
            },
            evidence=evidence,
        )
    if facts.regime.name not in {"host", "mixed"}:
        return NotApplicable(f"the run is {facts.regime.name}-bound: what the profiler costs the host is hidden")
    cost = rows * cost_of_row_us * 1e3
    part = cost / max(1.0, steps.period_ns)
    if part <= likely_from:
        return Clear(
            f"{rows:,.0f} operator rows per step cost about {cost / 1e3:,.0f} us, {part:.0%} of it; the step time "
            f"without the profiler is not known"
        )
    return Found(
        title="Recording probably made the step longer: {rows} operator rows per step at about {each} are {share} of "
        "{recorded}. The step time without the profiler is not known, so host times are upper bounds.",
        values={
            "rows": count(round(rows)),
            "each": time(cost_of_row_us * 1e3),
            "share": share(part),
            "recorded": time(steps.period_ns),
            "cost": time(cost),
        },
        evidence=evidence,
        confidence="low",
    )


def _measured(facts: Facts, unprofiled_ns: int) -> tuple[float, float]:
    """The recorded step time, ns, and its ratio to the un-profiled one: the recorder's own where there is one."""
    recorded = from_metadata(facts.trace.metadata)
    if recorded is not None and recorded.distortion and recorded.profiled is not None and recorded.unprofiled_step_us:
        if unprofiled_ns == round(recorded.unprofiled_step_us * 1e3):
            return recorded.profiled.median_us * 1e3, recorded.distortion
    return facts.steps.period_ns, facts.steps.period_ns / unprofiled_ns
