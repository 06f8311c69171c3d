"""MEM106."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.device_copies import Copies, cost_of, device_copies, host_of_each, share_of_time
from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, DEVICE, HOST, SITE, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind


def _of_tree(contexts: Contexts, *, share_from: float, per_step_from: float) -> Outcome:
    if not contexts.kernels.any():
        return NotApplicable("the tree holds no kernels")
    tree = contexts.tree
    converting, copying = contexts.operators(r"^aten::_to_copy$"), contexts.operators(r"^aten::copy_$")
    above = np.maximum(tree.parent, 0)
    # Only directly inside the operators that exist for the copy: `clone` under a converting operator is something else.
    casting = copying & converting[above] & (tree.parent >= 0)
    leaf = contexts.kernels & casting[above]
    number, device_ns = float(contexts.count[leaf].sum()), float(contexts.device[leaf].sum())
    held = mask_of(len(tree), tree.parent[np.flatnonzero(leaf)])
    root = np.unique(contexts.climbed(held, r"^aten::(_to_copy|to|type_as|float|half|bfloat16)$"))
    inside = contexts.inside(contexts.host)[root]
    launching = contexts.outermost(contexts.operators(".") & contexts.holding(contexts.kernels))
    of_device = device_ns / contexts.compute_ns
    of_host = float(inside.sum()) / max(1.0, float(contexts.inside(contexts.host)[launching].sum()))
    if not contexts.marked:
        of_host = 0.0  # first calls are in it
    if number < contexts.least(per_step_from) or max(of_device, of_host) < share_from:
        return Clear(f"conversions take {of_device:.1%} of the device's and {of_host:.1%} of the host's time")
    mask = mask_of(len(tree), root)
    casts = contexts.inside(np.where(leaf, contexts.count, 0.0))[root]
    around = contexts.operators("^aten::|Backward")[np.maximum(tree.parent[root], 0)] & (tree.parent[root] >= 0)
    by_autocast = float(casts[around].sum()) > 0.5 * number
    return Found(
        values={
            "casts": counted(number, "conversion", "conversions"),
            "per": contexts.per,
            "device": time(device_ns),
            "of_device": share(of_device),
            "host": time(float(inside.sum())),
            "of_host": share(of_host),
        },
        saves=contexts.saving(contexts.within(mask)),
        fix=_BY_AUTOCAST if by_autocast else _IN_THE_CODE,
        # Without shapes: a copy under `_to_copy` has few other reasons.
        confidence="medium",
        evidence=[
            table(
                "Conversions",
                [headed(SITE, "made by"), headed(COUNT, "conversions"), DEVICE, HOST],
                contexts.by_site(root, count=casts, device=contexts.inside(contexts.device)[root], host=inside),
            )
        ],
        location=contexts.location(int(root[np.argmax(inside)])),
    )


@rule(
    "MEM106",
    "cast-churn",
    of_tree=_of_tree,
    title="{casts} {per} of tensors from one type to another ({device} on the GPU, {of_device} of its time; {host} "
    "on the host, {of_host} of its time).",
)
def cast_churn(facts: Facts, *, share_from: float = 0.05, per_step_from: float = 2.0) -> Outcome:
    """The same data is converted between types again and again.

    Each conversion reads and writes the whole tensor and costs a launch. Autocast and hand-written norms convert around
    every operation; parameters kept in another type than they are used in are converted at each use.

    Costs: the conversions (device-bound), or the operators that make them (host-bound).

    Fix: by who makes them. Autocast: enter it once around the whole forward pass, so that it keeps what it cast, or keep
    the model in the narrow type. The code itself: keep data in the type in which it is used, or let torch.compile fuse
    the conversions into their neighbours.

    Verify: their share falls.

    Silent: for a single conversion, such as the scaling of a loss.

    Source: PyTorch's performance tuning guide.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    casts = _conversions(facts)
    steps = facts.steady_count
    device_ns, host_ns = cost_of(facts, casts)
    host_of = host_of_each(facts, casts, host_ns)
    of_device, of_host = share_of_time(facts, device_ns, host_ns)
    if len(casts.leaf) / steps < per_step_from or max(of_device, of_host) < share_from:
        return Clear(f"conversions take {of_device:.1%} of the device's and {of_host:.1%} of the host's time")
    places = sites(facts, casts.root)
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(places.label):
        mine = places.of_event == at
        rows.append(
            {
                "site": label,
                "types": _types(facts, int(casts.operator[np.argmax(mine)])),
                "count": int(mine.sum()) / steps,
                "device": float(facts.leaves.time[casts.leaf[mine]].sum()) / steps,
                "host": float(host_of[mine].sum()),
            }
        )
    rows.sort(key=lambda row: -row["device"])
    device = facts.leaves.rows(casts.leaf)
    return Found(
        values={
            "casts": counted(len(casts.leaf) / steps, "conversion", "conversions"),
            "per": per(facts),
            "device": time(device_ns),
            "of_device": share(of_device),
            "host": time(host_ns),
            "of_host": share(of_host),
        },
        change=remove(facts, trace.device_work[device]),
        fix=_BY_AUTOCAST if _by_autocast(facts, casts) else _IN_THE_CODE,
        confidence="high" if facts.health.shapes else "medium",
        evidence=[
            table(
                "Conversions",
                [headed(SITE, "made by"), TableColumn("types", "text", "from, to"), COUNT, DEVICE, HOST],
                rows,
            )
        ],
        location=locate(facts, int(casts.root[np.argmax(facts.leaves.time[casts.leaf])])),
        events=claim(facts, device),
    )


_BY_AUTOCAST = (
    "Enter autocast once around the whole forward pass: it keeps the parameters that it cast until it is left. Without "
    "gradients it keeps nothing: there keep the model in the narrow type (`model.to(torch.bfloat16)`)."
)
_IN_THE_CODE = (
    "Keep data and parameters in the type in which they are used (the conversions stand in the program or its modules), or "
    "let torch.compile fuse them into their neighbours."
)


def _by_autocast(facts: Facts, casts: Copies) -> bool:
    """Whether most conversions stand inside operators that work on their result: autocast puts them there."""
    trace = facts.trace
    names = trace.name_mask(r"^aten::(?:to|_to_copy|type_as|float|half|bfloat16|copy_)$")
    other = (trace.kind == Kind.OPERATOR) & ~names[trace.name]
    return float(np.mean(nearest(facts.host.parent, other, casts.operator) >= 0)) > 0.5


def _conversions(facts: Facts) -> Copies:
    """Copies under `_to_copy`; with shapes those whose types differ, without them all: they have few other reasons."""
    trace = facts.trace
    copies = device_copies(facts)
    converting = mask_of(len(trace.names), trace.name_ids("aten::_to_copy"))
    under = nearest(facts.host.parent, converting[trace.name], copies.operator)
    # Only inside the operators that exist for the copy: `clone` under a converting operator is something else.
    mine = (under >= 0) & (trace.start[np.maximum(under, 0)] >= trace.start[copies.root])
    copies = copies.of(mine)
    if not facts.health.shapes:
        return copies
    return copies.of(np.array([_changes_type(facts, int(event)) for event in copies.operator], dtype=bool))


def _changes_type(facts: Facts, operator: int) -> bool:
    call = facts.signatures.of(operator)
    target, source = (call.tensor(0), call.tensor(1)) if call else (None, None)
    return target is not None and source is not None and target.dtype != source.dtype


def _types(facts: Facts, operator: int) -> str:
    call = facts.signatures.of(operator)
    target, source = (call.tensor(0), call.tensor(1)) if call else (None, None)
    return f"{source.dtype} to {target.dtype}".replace("c10::", "") if target and source else ""
