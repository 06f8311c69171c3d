"""SYN108."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.host_copies import host_copies
from lanewise.diagnose.of_tree.tree_copies import tree_copies
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, host_cost, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.operator_kinds import FRAMEWORK, is_collective, is_framework
from lanewise.report.evidence_columns import BYTES, COUNT, DIRECTION, SITE, TOTAL, headed
from lanewise.report.quantity import byte_size, time
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind
from lanewise.tree.model import Phase


def _after_first(step: np.ndarray) -> np.ndarray:
    """All but the first of each step: one copy brings what all of them brought."""
    seen = np.ones(len(step), dtype=bool)
    seen[np.unique(step, return_index=True)[1]] = False
    return seen


def _of_tree(contexts: Contexts, *, copies_from: float, below_bytes: int) -> Outcome:
    if not contexts.has_device:
        return NotApplicable("the tree holds no device work")
    found = tree_copies(contexts)
    theirs = contexts.within(contexts.operators(FRAMEWORK) | (contexts.tree.phase == Phase.COMMUNICATION))
    found = found.of((found.bytes < below_bytes) & ~theirs[found.copy] & ~found.readback)
    number = float(found.number.sum())
    if number < contexts.least(copies_from):
        return Clear(f"{number:g} small copies {contexts.per}")
    root = np.unique(found.root)
    cost = contexts.inside(contexts.host)[root]
    return Found(
        values={
            "copies": counted(number, "copy", "copies"),
            "per": contexts.per,
            "bytes": byte_size(float(np.average(found.bytes, weights=found.number))),
            "cost": time(float(cost.sum()) / number),
        },
        saves=contexts.blocking(root),
        evidence=[
            table(
                "Small copies",
                [headed(SITE, "copied by"), headed(COUNT, "copies"), BYTES, headed(TOTAL, "host time of the calls")],
                contexts.by_site(
                    found.operator, count=found.number, bytes=found.bytes * found.number, total=found.blocked
                ),
            )
        ],
        location=contexts.location(int(found.operator[np.argmax(found.blocked)])),
    )


@rule(
    "SYN108",
    "many-small-copies",
    of_tree=_of_tree,
    title="{copies} {per} between host and GPU with {bytes} each (median); each costs the host {cost}.",
)
def many_small_copies(facts: Facts, *, copies_from: float = 10.0, below_bytes: int = 64 * 1024) -> Outcome:
    """Many copies of a few kilobytes: each pays the fixed price of a copy, whatever it carries.

    Costs: the operators that make them, less one.

    Fix: pack the values into one buffer and copy that, or keep them on one side.

    Verify: the number of copies per step falls.

    Silent: for copies that FSDP or DDP make for themselves, and for readbacks (SYN101) and moving models (SYN109).

    Source: TraceLens.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    found = host_copies(facts)
    found = found.of((found.bytes >= 0) & (found.bytes < below_bytes))
    theirs = (is_framework(trace) | is_collective(trace))[trace.name]
    theirs &= np.isin(trace.kind, (Kind.ANNOTATION, Kind.OPERATOR))
    own = (
        nearest(facts.host.parent, theirs & ~trace.name_mask(r"^(Optimizer\.|autograd::)")[trace.name], found.call) < 0
    )
    found = found.of(own)
    size, calls = found.bytes, found.call
    steps = facts.steady_count
    if len(calls) / steps < copies_from:
        return Clear(f"{len(calls) / steps:g} small copies per step")
    cost = host_cost(facts, calls) * steps / len(calls)
    places = sites(facts, calls)
    table_rows: list[dict[str, Any]] = []
    for i, label in enumerate(places.label):
        mine = places.of_event == i
        table_rows.append(
            {
                "site": label,
                "direction": str(found.direction[mine][0]),
                "count": int(mine.sum()) / steps,
                "bytes": float(np.median(size[mine])),
                "total": float(trace.duration[calls[mine]].sum()) / steps,
            }
        )
    table_rows.sort(key=lambda row: -row["total"])
    return Found(
        values={
            "copies": counted(len(calls) / steps, "copy", "copies"),
            "per": per(facts),
            "bytes": byte_size(float(np.median(size))),
            "cost": time(cost),
        },
        change=remove(facts, found.event[_after_first(trace.steps.of_event[found.event])]),
        # Python between the operators has no row: what recording adds to the operators stands for it.
        evidence=[
            table(
                "Small copies",
                [
                    headed(SITE, "copied by"),
                    DIRECTION,
                    COUNT,
                    headed(BYTES, "median size"),
                    headed(TOTAL, "time of the calls"),
                ],
                table_rows,
            )
        ],
        location=locate(facts, int(calls[0])),
        events=np.unique(calls).tolist(),
    )
