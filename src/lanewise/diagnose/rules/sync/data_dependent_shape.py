"""SYN102."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_copies import tree_readbacks
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.readbacks import find_readbacks, host_events_inside
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import climb, counted, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.replay.change import add
from lanewise.report.evidence_columns import COUNT, SITE, TOTAL, WAIT
from lanewise.report.quantity import text, time
from lanewise.trace.groups import mask_of

# Indexing that asks for the positions of what a mask selects.
_AROUND = ("aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put", "aten::argwhere")


# The operator with a fixed shape that takes its place (`where`, a multiplication by the mask).
_OPERATOR_NS = 8_000.0


def _of_tree(contexts: Contexts, *, per_step_from: float) -> Outcome:
    if not contexts.has_device:
        return NotApplicable("the tree holds no device work")
    found = tree_readbacks(contexts)
    found = found.of(found.by_shape)
    # One indexing by two masks asks twice: it counts once.
    mask = mask_of(len(contexts.tree), found.root)
    root = np.unique(contexts.climbed(mask, f"^({'|'.join(_AROUND)})$"))
    number = float(contexts.calls[root].sum())
    if number < contexts.least(per_step_from):
        return Clear("no operator waits for the size of its result")
    cost = contexts.inside(contexts.host)[root]
    worst = int(found.root[np.argmax(found.host)])
    return Found(
        values={
            "calls": counted(number, "call", "calls"),
            "per": contexts.per,
            "operator": text(contexts.name(worst)),
            "cost": time(float(cost.sum()) / number),
        },
        saves=contexts.blocking(root),
        evidence=[
            table(
                "Operators that wait for the size of their result",
                [SITE, COUNT, TOTAL],
                contexts.by_site(root, count=contexts.calls[root], total=cost),
            )
        ],
        location=contexts.location(worst),
    )


@rule(
    "SYN102",
    "data-dependent-shape",
    of_tree=_of_tree,
    title="{calls} {per} to operators whose result size depends on the data ({operator} first): the host stops "
    "for {cost} at each.",
)
def data_dependent_shape(facts: Facts, *, per_step_from: float = 1.0) -> Outcome:
    """The host must know how many elements come out before it can go on: `nonzero`, boolean indexing, `unique`.

    The operator counts on the device, and the host waits for the count to allocate the result. The queue in front of
    the device runs empty meanwhile, and no CUDA graph can contain the operator.

    Costs: the duration of these calls, with that of the indexing around them: an operation of fixed size takes the
    place of the whole.

    Fix: keep the size fixed: `torch.where`, multiplication with a mask, `masked_fill` instead of boolean indexing,
    `torch.nonzero_static(size=...)`, `repeat_interleave(..., output_size=...)`.

    Verify: the waits are gone.

    Silent: for `nonzero_static` and for `repeat_interleave` with a given output size: both know the size already.

    Source: PyTorch's performance tuning guide.
    """
    trace = facts.trace
    if facts.classes.device == "":
        return NotApplicable("the trace holds no device work")
    found = find_readbacks(facts)
    found = found.of(found.by_shape)
    steps = facts.steady_count
    if len(found.root) / steps < per_step_from:
        return Clear("no operator waits for the size of its result")
    around = mask_of(len(trace.names) + 1, trace.name_ids(*_AROUND))
    # One indexing by two masks asks twice: it counts once.
    root, first = np.unique(climb(facts, found.root, around), return_index=True)
    asked = found.root[first]
    cost = trace.duration[root]
    places = sites(facts, asked)
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(places.label):
        mine = places.of_event == at
        rows.append(
            {
                "site": label,
                "count": int(mine.sum()) / steps,
                "total": float(cost[mine].sum()) / steps,
                "wait": float(facts.host.wait_inside[root[mine]].sum()) / steps,
            }
        )
    rows.sort(key=lambda row: -row["total"])
    worst = int(asked[np.argmax(cost)])
    return Found(
        values={
            "calls": counted(len(root) / steps, "call", "calls"),
            "per": per(facts),
            "operator": text(trace.name_of(worst)),
            "cost": time(float(np.median(cost))),
        },
        change=remove(facts, root) + add(host_ns=_OPERATOR_NS * len(root) / steps),
        evidence=[table("Operators that wait for the size of their result", [SITE, COUNT, TOTAL, WAIT], rows)],
        location=locate(facts, worst),
        events=np.concatenate((root, host_events_inside(facts, root))).tolist(),
    )
