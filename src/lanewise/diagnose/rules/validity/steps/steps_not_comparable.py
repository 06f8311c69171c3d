"""MEA110."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted
from lanewise.measure.facts import Facts
from lanewise.measure.validity.steadiness import measure_steadiness, spread_of
from lanewise.report.evidence_columns import HOST, OPERATORS, PERIOD, STEP, headed
from lanewise.report.model import Block, TableColumn, TextBlock
from lanewise.report.quantity import count, ratio, text, time


@rule(
    "MEA110",
    "steps-not-comparable",
    kind="validity",
    title="The steady steps vary too much for a single step time: {low} to {high}, a spread of {spread} the median.",
)
def steps_not_comparable(
    facts: Facts, *, steps_from: int = 3, spread_from: float = 0.3, operators_differ_from: float = 0.05
) -> Outcome:
    """The recording has no steady state to speak of.

    Too few steps, steps that run different operators, or step times that scatter: a median over them describes none of
    them, and a gain computed from it is a guess.

    Costs: nothing; gains in this report are less certain.

    Fix: record more steps (`active=10` or more) after a longer warm-up, with inputs of one shape.

    Verify: the spread falls below 30 % of the median and the steps run the same operators.

    Silent: where only a few steps are far slower than the others (MEA114), and otherwise. Programs whose shapes really
    vary will always be reported: compare their steps by hand.

    Source: our H100: in a recording of 20 steps of one matrix product, host times settled only in the tenth.
    """
    steps, table_of_steps = facts.trace.steps, facts.steps.table
    if not steps.recorded:
        return NotApplicable("the trace marks no steps")
    measured = measure_steadiness(facts)
    steady = facts.steps.steady
    period = table_of_steps["period"]
    differs = np.flatnonzero((measured.difference > operators_differ_from) & steady)
    rows = [
        {
            "step": int(steps.number[row]),
            "steady": "yes" if steady[row] else "no",
            "period": int(period[row]),
            "host": int(table_of_steps["host_duration"][row]),
            "operators": int(measured.operators[row]),
            "differs": float(measured.difference[row]),
        }
        for row in range(len(steps))
    ]
    evidence: list[Block] = [
        table(
            "Recorded steps",
            [
                STEP,
                TableColumn("steady", "text", "used"),
                headed(PERIOD, "period"),
                headed(HOST, "on the host"),
                OPERATORS,
                TableColumn("differs", "share", "operators that differ"),
            ],
            rows,
            limit=24,
        )
    ]
    chosen = period[steady]
    values = {
        "steps": counted(len(steps), "step was", "steps were"),
        "low": time(float(chosen.min())),
        "high": time(float(chosen.max())),
        "spread": ratio(measured.spread),
        "differ": count(len(differs)),
    }
    if measured.settled > 0:
        values |= {
            "settled": text(f"#{steps.number[measured.settled]}"),
            "level": time(measured.settled_ns),
            "before": count(measured.settled),
            "second": time(float(table_of_steps["host_duration"][1])),
        }
        evidence.append(
            TextBlock(
                "Host times settle only after {before} recorded steps: {level} from step {settled} on, {second} in "
                "the second.",
                {k: values[k] for k in ("before", "level", "settled", "second")},
            )
        )
    if len(steps) < steps_from:
        return Found(
            values=values,
            evidence=evidence,
            title="Only {steps} recorded: too few to tell a steady step from an unusual one.",
        )
    if len(differs):
        return Found(
            values=values,
            evidence=evidence,
            steps=differs.tolist(),
            title="{differ} of the steady steps run different operators: no single step describes the run.",
        )
    spread = spread_of(period[steady & ~facts.slow]) if facts.slow.any() else measured.spread
    if spread > spread_from:
        return Found(values=values, evidence=evidence)
    if facts.slow.any():
        return Clear("the steady steps are alike but for the slow ones that MEA114 names")
    return Clear(f"{int(steady.sum())} steady steps within {measured.spread:.0%} of their median")
