"""MEM103."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.device_copies import Copies, cost_of, device_copies, host_of_each, share_of_time
from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, DEVICE, HOST, SITE, headed
from lanewise.report.quantity import text, time

# Out-of-place operators that copy their input and then work on the copy in place.
OUT_OF_PLACE = (
    r"^aten::(masked_fill|masked_scatter|index_put|index_add|index_fill|index_copy|scatter|scatter_add|fill_diagonal)$"
)
_POWER = "aten::pow"
_POWER_TITLE = (
    "{copies} {per}: the backward of x.pow(2) computes x.pow(1), which only copies x ({device} on the GPU, {host} on the "
    "host)."
)


@rule(
    "MEM103",
    "duplicate-copy",
    title="{copies} {per}: {operator} first copies its whole input, then changes the copy ({device} on the GPU, "
    "{host} on the "
    "host).",
)
def duplicate_copy(facts: Facts, *, per_step_from: float = 1.0) -> Outcome:
    """An operator copies a tensor only to change the copy, where changing the tensor itself would do.

    Out-of-place operators such as `masked_fill` clone their input first: a read and a write of everything for a
    change of some of it. The backward of `x.pow(2)` computes `2 * grad * x.pow(1)`, and `pow(1)` is a plain copy.

    Costs: the copy (device-bound), or the operator that makes it (host-bound).

    Fix: the in-place twin (`masked_fill_`) where autograd does not need the input; `x * x` or `torch.square(x)` in
    place of `x.pow(2)`.

    Verify: one kernel less per call.

    Silent: where the copy is made for another reason (types, layout: MEM106, MEM104).

    Source: huggingface/blog torch-attention-profile; 17 copies and 1.0 ms of host time per step of a small Llama.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    copies = device_copies(facts)
    power = _of_power(facts, copies)
    doubled = _before_in_place(facts, copies)
    copies, power = copies.of(power | doubled), power[power | doubled]
    steps = facts.steady_count
    if len(copies.leaf) / steps < per_step_from:
        return Clear(f"{len(copies.leaf) / steps:g} such copies per step")
    device_ns, host_ns = cost_of(facts, copies)
    host_of = host_of_each(facts, copies, host_ns)
    places = sites(facts, copies.root)
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(places.label):
        mine = places.of_event == at
        rows.append(
            {
                "site": label,
                "count": int(mine.sum()) / steps,
                "device": float(facts.leaves.time[copies.leaf[mine]].sum()) / steps,
                "host": float(host_of[mine].sum()),
            }
        )
    rows.sort(key=lambda row: -row["device"])
    device = facts.leaves.rows(copies.leaf)
    share = share_of_time(facts, device_ns, host_ns)
    return Found(
        values={
            "copies": counted(len(copies.leaf) / steps, "copy", "copies"),
            "per": per(facts),
            "device": time(device_ns),
            "host": time(host_ns),
            "operator": text(trace.name_of(int(copies.above[~power][0])) if not power.all() else ""),
        },
        title=_POWER_TITLE if power.mean() > 0.5 else None,
        change=remove(facts, trace.device_work[device]),
        confidence="high" if max(share) > 0 else "medium",
        evidence=[table("Copies before a change in place", [headed(SITE, "made by"), COUNT, DEVICE, HOST], rows)],
        location=locate(facts, int(copies.root[0])),
        events=claim(facts, device),
    )


def _of_power(facts: Facts, copies: Copies) -> np.ndarray:
    """Copies that `pow` makes in the backward of a power: exponent one."""
    trace, parent = facts.trace, facts.host.parent
    above = copies.above
    power = (above >= 0) & np.isin(trace.name[np.maximum(above, 0)], trace.name_ids(_POWER))
    node = np.where(power, parent[np.maximum(above, 0)], -1)
    backward = trace.name_mask(r"PowBackward0$")
    return power & (node >= 0) & backward[trace.name[np.maximum(node, 0)]]


def _before_in_place(facts: Facts, copies: Copies) -> np.ndarray:
    """Copies of out-of-place operators that also launch the kernel of their in-place twin."""
    trace = facts.trace
    out_of_place = trace.name_mask(OUT_OF_PLACE)
    above = copies.above
    chosen = (above >= 0) & out_of_place[trace.name[np.maximum(above, 0)]]
    if not chosen.any():
        return chosen
    leaves = facts.leaves.operator
    own, parents = set(copies.operator.tolist()), facts.host.parent
    busy = {int(parents[leaf]) for leaf in leaves.tolist() if leaf not in own} | set(leaves.tolist())
    return chosen & np.array([int(event) in busy for event in above])
