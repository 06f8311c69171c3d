"""OPT106."""

from __future__ import annotations

import re

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import compute_ns
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.training.backward_work import Backward
from lanewise.report.evidence_columns import COUNT, NODE
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, ratio, share, text, time
from lanewise.trace.schema import ENGINE_PREFIX

_MISSING_FROM = 0.02
# Nodes of ATen operators end in a number. The forward row of a custom or compiled function is not reliably the whole of
# its forward.
_ATEN = re.compile(r"^\w+Backward\d+$")
_INDEXING = re.compile(r"^(Index|IndexSelect|Embedding|EmbeddingBag|Gather|TakeAlongDim|UnsafeIndex|IndexPut)Backward")


@rule(
    "OPT106",
    "expensive-backward",
    title="{node} takes {backward} of device time per step, {ratio} its forward ({forward}).",
)
def expensive_backward(
    facts: Facts,
    *,
    ratio_from: float = 3.0,
    attention_ratio_from: float = 3.75,
    share_from: float = 0.03,
    index_share: float = 0.02,
) -> Outcome:
    """The backward of one operator costs far more than its forward.

    Two is normal for a matrix product, two and a half for attention. Half as much again means that the gradient is
    computed in an awkward way: an index whose backward sorts and scatters, a layout that must be copied, a reduction
    over a dimension that is broadcast in forward.

    Costs: backward less twice the forward.

    Fix: per operator. `index_select` or `embedding` instead of advanced indexing, `scatter_add` with unique indices,
    the layout that the backward kernel wants, `reshape` instead of `expand` plus `sum`.

    Verify: the ratio.

    Silent: at 3x or less (attention: 3.75x), below 3 % of the device's computing (2 % for indexing), for recomputed
    forward work (OPT105), for kernels that run beside communication (DIS105) for custom and compiled autograd
    functions, and for nodes whose forward is not in the recording.

    Source: calling-context profilers, which read this off forward and backward contexts.
    """
    backward = facts.backward
    if backward is None:
        return NotApplicable("no backward pass in steady steps")
    if (backward.forward < 0).all():
        return NeedsCapture("sequence numbers: no backward row has a forward operator in this recording")
    if facts.health.unmatched_share > _MISSING_FROM:
        return NotApplicable("too many device records are missing (MEA108)")
    compute, steps = compute_ns(facts), facts.steady_count
    rows: list[dict[str, float | str]] = []
    claims: list[np.ndarray] = []
    for name, mine in _by_name(facts, backward):
        if not _ATEN.search(name):
            continue
        spent = float(backward.device_ns[mine].sum()) / steps
        known = mine & (backward.forward_ns > 0)
        own = float(backward.device_ns[known].sum()) / steps
        forward = float(backward.forward_ns[known].sum()) / steps
        indexing = _INDEXING.match(name) is not None
        if spent / compute < (index_share if indexing else share_from):
            continue
        times = own / forward if forward > 0 else float("inf")
        limit = attention_ratio_from if "Attention" in name else ratio_from
        if not indexing and (forward == 0 or times <= limit):
            continue
        if indexing and forward > 0 and times <= 1.0:
            continue
        rows.append(
            {
                "node": name,
                "count": round(float(mine.sum()) / steps, 1),
                "backward": spent,
                "forward": forward,
                "ratio": times if forward > 0 else -1.0,
                "gain": max(0.0, spent - 2 * forward),
            }
        )
        claims.append(backward.node[mine])
    if not rows:
        return Clear("no node costs more than its forward explains")
    order = sorted(range(len(rows)), key=lambda i: -float(rows[i]["gain"]))
    worst = rows[order[0]]
    nodes = np.concatenate(claims)
    calls = facts.launches.call[np.isin(facts.host.outermost_operator[facts.launches.call], nodes)]
    work = facts.trace.device_work[np.isin(facts.trace.links.launch, calls)]
    gain, spent = (sum(float(row[key]) for row in rows) for key in ("gain", "backward"))
    known_forward = float(worst["forward"]) > 0
    return Found(
        title=None
        if known_forward
        else "{node} takes {backward} of device time per step; its forward is a plain lookup.",
        values={
            "node": text(str(worst["node"])),
            "backward": time(float(worst["backward"])),
            "forward": time(float(worst["forward"])),
            "ratio": ratio(float(worst["ratio"])),
            "nodes": count(len(rows)),
            "share": share(float(worst["backward"]) / compute),
        },
        change=rescale(facts, work, 1 - gain / max(1.0, spent)),
        bound=True,
        confidence="medium",
        evidence=[
            table(
                "Backward nodes against their forward",
                [
                    NODE,
                    COUNT,
                    TableColumn("backward", "time", "backward"),
                    TableColumn("forward", "time", "forward"),
                    TableColumn("ratio", "ratio", "ratio"),
                    TableColumn("gain", "time", "beyond twice the forward"),
                ],
                [rows[i] for i in order],
            )
        ],
        location=locate(facts, int(nodes[0])),
        events=calls.tolist(),
    )


def _by_name(facts: Facts, backward: Backward) -> list[tuple[str, np.ndarray]]:
    trace = facts.trace
    names = trace.name[backward.node]
    return [(trace.names[int(n)].removeprefix(ENGINE_PREFIX), names == n) for n in np.unique(names).tolist()]
