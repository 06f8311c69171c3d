"""LAU112."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import of_step, per
from lanewise.diagnose.what_if.fitting import host_matters
from lanewise.measure.facts import Facts
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import COUNT, OPERATOR, TIME, headed
from lanewise.report.quantity import share, text, time
from lanewise.trace.schema import Kind

_SHOWN = 8


def _on_device(facts: Facts) -> np.ndarray:
    """How many launches and device operations each event holds: a file may have the one without the other."""
    operator = facts.trace.links.operator
    work = np.bincount(operator[operator >= 0], minlength=len(facts.trace))
    return facts.launches_inside + facts.host.accumulate(work)


@rule(
    "LAU112",
    "computed-on-cpu",
    title="The CPU computes while the GPU waits: {time} {per} ({share} of it) of products, convolutions or attention that "
    "launch nothing, most of it in {operator}.",
)
def computed_on_cpu(facts: Facts, *, share_from: float = 0.05) -> Outcome:
    """Part of the model runs on the CPU, and the device has nothing to do meanwhile.

    A layer that was never moved, a tensor that was brought to the host for one operation, pre- or post-processing that is
    matrix work: the device would need a hundredth of the time.

    Costs: the host time of these operators; the device would take a little of it.

    Fix: move what they are computed from to the device (`module.to(device)`, `tensor.to(device)` once, outside the loop).
    What has to stay on the CPU, let another thread or process compute ahead of time.

    Verify: the operators launch kernels, and the device no longer waits for them.

    Silent: below 5 % of the step, where the device does not wait for the host, and in programs without a device (MEA109).

    Source: common practice.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    if not host_matters(facts):
        return NotApplicable(f"the run is {facts.regime.name}-bound: the device does not wait for the host")
    rows = facts.steady_events(trace.of(Kind.OPERATOR))
    rows = rows[facts.matrix_names[trace.name[rows]] & (_on_device(facts)[rows] == 0)]
    # What launches by a thread of its own (backward) or only describes a product costs next to nothing itself.
    own = facts.host.self_time[rows]
    spent = float(own.sum()) / facts.steady_count
    if of_step(facts, spent) < share_from or spent < share_from * facts.steps.period_ns:
        return Clear(f"matrix work on the CPU takes {of_step(facts, spent):.1%} of the step")
    by_name = np.bincount(trace.name[rows], weights=own, minlength=len(trace.names))
    number = np.bincount(trace.name[rows], minlength=len(trace.names))
    found: list[dict[str, Any]] = [
        {
            "operator": trace.names[name],
            "count": float(number[name]) / facts.steady_count,
            "time": float(by_name[name]) / facts.steady_count,
        }
        for name in np.argsort(-by_name, kind="stable")[:_SHOWN].tolist()
        if by_name[name] > 0
    ]
    return Found(
        values={
            "time": time(spent),
            "per": per(facts),
            "share": share(min(1.0, spent / max(1.0, facts.steps.period_ns))),
            "operator": text(found[0]["operator"]),
        },
        change=cheaper(rows, 0.0),
        spread=0.3,
        evidence=[table("Operators on the CPU", [OPERATOR, COUNT, headed(TIME, "self time")], found)],
        location=locate(facts, int(rows[np.argmax(own)])),
        events=rows.tolist(),
    )
