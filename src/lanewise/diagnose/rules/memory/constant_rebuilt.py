"""MEM108."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_sum, enclosing, host_cost, named, outermost, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, HOST, OPERATOR, SHAPES
from lanewise.report.model import TableColumn
from lanewise.report.quantity import time
from lanewise.trace.schema import Kind

_BUILDERS = ("aten::ones", "aten::arange", "aten::full", "aten::tril", "aten::triu", "aten::eye", "aten::linspace")


@rule(
    "MEM108",
    "constant-rebuilt",
    title="{tensors} {per} rebuilt with the same values each time ({device} on the GPU, {host} on the host).",
)
def constant_rebuilt(facts: Facts, *, per_step_from: float = 1.0) -> Outcome:
    """Masks, ranges and tables of ones that never change are made again in every step.

    Costs: the operators that build them, on the device or on the host.

    Fix: build them once and keep them (`register_buffer`); for attention pass `is_causal=True` in place of a mask.

    Verify: the operators are gone from the steady steps.

    Silent: for random tensors, and for arguments that differ between steps.

    Source: huggingface/blog torch-attention-profile.
    """
    trace, leaves = facts.trace, facts.leaves
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    builders = outermost(facts, facts.steady_events(named(facts, (Kind.OPERATOR,), *_BUILDERS)))
    holder = enclosing(facts, builders, leaves.operator)
    holder = np.where(holder >= 0, holder, np.where(np.isin(leaves.operator, builders), leaves.operator, -1))
    building = np.unique(holder[holder >= 0])
    if len(building) == 0:
        return Clear("no constant is built on the device in steady steps")
    if not facts.health.shapes:
        return NeedsCapture("arguments, to see whether they are the same in every step: `record_shapes=True`")
    steps = facts.steady_count
    if steps < 2:
        return NeedsCapture("at least two steady steps, to compare them: more active steps in the schedule")
    example, group = facts.signatures.groups(building)
    constant = _equally_often(facts, building, group, len(example))
    chosen = building[np.isin(group, constant)]
    if len(chosen) / steps < per_step_from:
        return Clear("what is built differs between steps")
    mine = np.flatnonzero(np.isin(holder, chosen))
    rows = leaves.rows(mine)
    calls = trace.links.launch[rows]
    device_ns, host_ns = device_sum(facts, rows), host_cost(facts, calls)
    table_rows: list[dict[str, Any]] = []
    for at in constant:
        call = facts.signatures.of(int(example[at]))
        values = ", ".join(value for value in call.concrete if value) if call else ""
        table_rows.append(
            {
                "operator": trace.name_of(int(example[at])),
                "arguments": values[:80],
                "shapes": shapes_label(facts, int(example[at])),
                "count": int((group == at).sum()) / steps,
                "host": float(trace.duration[building[group == at]].sum()) / steps,
            }
        )
    table_rows.sort(key=lambda row: -row["host"])
    return Found(
        values={
            "tensors": counted(len(chosen) / steps, "constant tensor", "constant tensors"),
            "per": per(facts),
            "device": time(device_ns),
            "host": time(host_ns),
        },
        change=remove(facts, trace.device_work[rows]),
        confidence="medium",
        evidence=[
            table(
                "Built with the same arguments in every steady step",
                [OPERATOR, TableColumn("arguments", "text", "arguments"), SHAPES, COUNT, HOST],
                table_rows,
            )
        ],
        location=locate(facts, int(chosen[0])),
        events=claim(facts, rows),
    )


def _equally_often(facts: Facts, events: np.ndarray, group: np.ndarray, groups: int) -> list[int]:
    """Groups with the same number of events in each steady step, at least one."""
    counts = np.zeros((groups, len(facts.steps.steady)), dtype=np.int64)
    np.add.at(counts, (group, facts.trace.steps.of_event[events]), 1)
    counts = counts[:, facts.steps.steady]
    return np.flatnonzero((counts.min(axis=1) == counts.max(axis=1)) & (counts.min(axis=1) > 0)).tolist()
