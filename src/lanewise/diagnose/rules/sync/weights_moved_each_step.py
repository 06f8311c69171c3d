"""SYN109."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.host_copies import host_copies
from lanewise.diagnose.of_tree.tree_copies import tree_copies
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.readbacks import host_events_inside
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import named, of_step, outermost, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import BYTES, COUNT, DIRECTION, LONGEST, SITE, TOTAL, headed
from lanewise.report.quantity import byte_size, count, share, time
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

_ASKED = "aten::_has_compatible_shallow_copy_type"


def _of_tree(contexts: Contexts, *, copies_from: int, both_ways_from: int, share_from: float) -> Outcome:
    if not contexts.has_device:
        return NotApplicable("the tree holds no device work")
    if not contexts.marked:
        return NotApplicable("no steps were seen: whether the same tensors travel again and again cannot be told")
    found = tree_copies(contexts)
    found = found.of(contexts.within(contexts.operators(r"^aten::to$"))[found.copy])
    moved = found.bytes * found.number
    there, back = (found.direction == way for way in ("HtoD", "DtoH"))
    comes_back = bool(there.any()) and np.isclose(moved[there].sum(), moved[back].sum(), rtol=0.02)
    number = float(found.number.sum())
    if number < (both_ways_from if comes_back else copies_from):
        return Clear(f"{number:g} copies {contexts.per} under `to`")
    total = float(found.blocked.sum())
    if contexts.of_step(total) < share_from:
        return Clear(f"the calls of these copies take {contexts.of_step(total):.0%} of the step")
    return Found(
        values={
            "copies": count(round(number)),
            "bytes": byte_size(float(moved.sum())),
            "per": contexts.per,
            "total": time(total),
            "share": share(contexts.of_step(total)),
        },
        title=_TRAVEL,
        saves=contexts.blocking(np.unique(found.root)),
        confidence="high" if comes_back else "medium",
        evidence=[
            table(
                "Copies under `to`",
                [headed(SITE, "copied by"), COUNT, BYTES, headed(TOTAL, "time of the calls")],
                contexts.by_site(found.operator, count=found.number, bytes=moved, total=found.blocked),
            )
        ],
        location=contexts.location(int(found.operator[np.argmax(found.blocked)])),
    )


# That they are the same ones in every step is not in a tree.
_TRAVEL = (
    "{copies} tensors ({bytes}) travel between host and GPU under `to` {per}: the copies' calls take {total}, {share} of "
    "the step."
)


@rule(
    "SYN109",
    "weights-moved-each-step",
    of_tree=_of_tree,
    title="The same {copies} tensors ({bytes}) travel between host and GPU {per}: the copies' calls take {total}, "
    "{share} of "
    "the step.",
)
def weights_moved_each_step(
    facts: Facts, *, copies_from: int = 50, both_ways_from: int = 4, share_from: float = 0.20
) -> Outcome:
    """A whole model is moved to the device, or off it, inside the loop.

    Costs: the duration of all the copies' calls, and what else the operators around them do on the host.

    Fix: call `model.to(device)` once before the loop. To keep models that do not fit at the same time, offload with
    pinned memory and prefetch instead.

    Verify: these copies are gone.

    Silent: for fewer than 50 copies per step, unless the same sizes go both ways; for copies that return at once (pinned
    memory, prefetched): their calls take no share of the step.

    Source: Deep-Learning-Profiling-Tools' case study; 641 copies and 50 ms per step of a ResNet-50 on our H100.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    found = host_copies(facts)
    moves = mask_of(len(trace.names), trace.name_ids("aten::to"))
    by_to = nearest(facts.host.parent, (trace.kind == Kind.OPERATOR) & moves[trace.name], found.call) >= 0
    found = found.of(by_to)
    size, direction, calls = found.bytes, found.direction, found.call
    steps = facts.steady_count
    # A few tensors per step may be a batch; what comes back with the same sizes is not.
    least = both_ways_from if _come_back(direction, size) else copies_from
    if len(calls) < least * steps:
        return Clear(f"{len(calls) / steps:g} copies per step under `to`")
    step = trace.steps.of_event[found.event]
    multisets = {
        tuple(np.sort(np.where(direction[step == s] == "HtoD", size[step == s], -size[step == s])).tolist())
        for s in np.flatnonzero(facts.steps.steady).tolist()
    }
    if len(multisets) > 1:
        return Clear("the copies under `to` differ between steps")
    total = float(trace.duration[calls].sum()) / steps
    if total < share_from * facts.steps.step_ns:
        return Clear(f"the calls of these copies take {of_step(facts, total):.0%} of the step")
    table_rows: list[dict[str, Any]] = [
        {
            "direction": way,
            "count": int((direction == way).sum()) / steps,
            "bytes": float(size[direction == way].sum()) / steps,
            "total": float(trace.duration[calls[direction == way]].sum()) / steps,
            "longest": float(trace.duration[calls[direction == way]].max()),
        }
        for way in np.unique(direction).tolist()
    ]
    roots = outermost(facts, np.unique(facts.host.outermost_operator[calls]))
    return Found(
        values={
            "copies": count(round(len(calls) / steps)),
            "bytes": byte_size(float(size.sum()) / steps),
            "per": per(facts),
            "total": time(total),
            "share": share(of_step(facts, total)),
        },
        # `Module.to` asks this of every parameter.
        change=remove(facts, np.concatenate((roots, named(facts, (Kind.OPERATOR,), _ASKED)))),
        evidence=[
            table(
                "Copies under `to`",
                [DIRECTION, COUNT, BYTES, headed(TOTAL, "time of the calls"), headed(LONGEST, "longest call")],
                table_rows,
            )
        ],
        location=locate(facts, int(calls[0])),
        events=np.concatenate((roots, host_events_inside(facts, roots))).tolist(),
    )


def _come_back(direction: np.ndarray, size: np.ndarray) -> bool:
    """Whether what goes to the device comes back."""
    there, back = (np.sort(size[direction == way]) for way in ("HtoD", "DtoH"))
    return len(there) > 0 and np.array_equal(there, back)
