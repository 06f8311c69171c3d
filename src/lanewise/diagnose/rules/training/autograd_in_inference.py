"""OPT104."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import per
from lanewise.measure.facts import Facts
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import STEP
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, text
from lanewise.trace.schema import Kind

# Of an operator's host time, what is left under `inference_mode`.
_KEPT = 0.7


@rule(
    "OPT104",
    "autograd-in-inference",
    title="{operators} operators {per} are recorded for a backward pass that never runs: their inputs stay in memory.",
)
def autograd_in_inference(facts: Facts) -> Outcome:
    """Autograd records a graph, but backward never runs.

    With grad mode on and parameters that require gradients, every operator keeps what its backward would need: memory
    for activations that inference could drop at once, and bookkeeping on the host.

    Costs: memory, and about 30 % of the host time of each of these operators.

    Fix: run inference under `torch.inference_mode()`, or `torch.no_grad()`.

    Verify: operators carry no sequence numbers any more, and the peak of allocated memory is lower.

    Silent: where backward runs, and where the sequence number stays the same: grad mode is on, but nothing that
    requires gradients is used, so nothing is recorded.

    Source: PyTorch's autograd mechanics; a host-bound step of 91 such operators took 0.65 and 0.70 times as long under
    `inference_mode` on an H200 (`benchmarks/replay`).
    """
    trace = facts.trace
    sequence, thread = trace["events"]["sequence"], trace["events"]["forward_thread"]
    operators = trace.of(Kind.OPERATOR)
    if len(operators) == 0:
        return NotApplicable("the trace holds no operators")
    if (thread[operators] > 0).any() or trace.name_mask(r"^autograd::engine::|Backward\d*$")[
        trace.name[operators]
    ].any():
        return NotApplicable("backward runs")
    rows = operators[(sequence[operators] >= 0) & (trace.steps.of_event[operators] >= 0)]
    # Autocast casts parameters with gradients on, whatever the mode around it: the operator around has no number then.
    rows = rows[sequence[facts.host.outermost_operator[rows]] >= 0]
    if len(rows) == 0:
        return Clear("no operator is recorded for backward")
    steady = np.flatnonzero(facts.steps.steady)
    step = trace.steps.of_event[rows]
    table_rows: list[dict[str, object]] = []
    advanced: list[int] = []
    for number in steady.tolist():
        mine = sequence[rows[step == number]]
        distinct = len(np.unique(mine))
        advanced.append(distinct - 1)
        if len(mine):
            table_rows.append(
                {
                    "step": int(trace.steps.number[number]),
                    "first": int(mine.min()),
                    "last": int(mine.max()),
                    "recorded": distinct - 1,
                }
            )
    if not advanced or min(advanced) < 1:
        return Clear("the sequence number does not advance: nothing is recorded")
    recorded = rows[step == steady[-1]]
    top = np.bincount(trace.name[recorded], minlength=len(trace.names))
    most = trace.names[int(np.argmax(top))]
    return Found(
        values={"operators": count(round(float(np.mean(advanced)))), "most": text(most), "per": per(facts)},
        evidence=[
            table(
                "Sequence numbers of forward operators",
                [
                    STEP,
                    TableColumn("first", "count", "first"),
                    TableColumn("last", "count", "last"),
                    TableColumn("recorded", "count", "recorded"),
                ],
                table_rows,
            )
        ],
        change=cheaper(np.unique(facts.host.outermost_operator[rows[facts.steps.steady[step]]]), _KEPT),
        spread=0.3,
        location=locate(facts, int(recorded[0])),
    )
