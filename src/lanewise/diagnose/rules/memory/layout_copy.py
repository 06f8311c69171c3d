"""MEM104."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.device_copies import Copies, cost_of, device_copies, parent_name, share_of_time
from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.rules.memory.duplicate_copy import OUT_OF_PLACE
from lanewise.diagnose.select import claim, counted, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, DEVICE, INSIDE
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time
from lanewise.trace.nesting import nearest


@rule(
    "MEM104",
    "layout-copy",
    title="{copies} {per} only to bring data into another order ({device} on the GPU, {share} of its time; {host} on "
    "the host).",
)
def layout_copy(facts: Facts, *, share_from: float = 0.03) -> Outcome:
    """`contiguous()`, `clone()` or a `reshape` of a transposed tensor writes the data out in the order that the next
    operator wants.

    The same values move through memory once more. Often the producer could have written them in that order, or the
    consumer could have read them as they were.

    Costs: the copies (device-bound), or the operators that make them (host-bound).

    Fix: produce the layout that is needed (order of dimensions in the projection, `torch.nn.Linear` before the
    transpose), use `einsum` or batched products that accept strides, fold the batch into the rows.

    Verify: the copies are gone.

    Silent: for changes of type (MEM106), for convolution layouts (KER107), and for copies of parameters by frameworks.

    Source: PyTorch's performance tuning guide; huggingface/blog torch-profiler (broadcast before `bmm`).
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    copies = _reordering(facts)
    device_ns, host_ns = cost_of(facts, copies)
    of_device, _ = share_of_time(facts, device_ns, host_ns)
    if of_device < share_from:
        return Clear(f"layout copies take {of_device:.1%} of the device's time")
    if not facts.health.shapes:
        return NeedsCapture("shapes and strides, to tell changes of order from changes of type: `record_shapes=True`")
    copies = copies.of(np.array([_same_type(facts, int(event)) for event in copies.operator], dtype=bool))
    device_ns, host_ns = cost_of(facts, copies)
    of_device, _ = share_of_time(facts, device_ns, host_ns)
    if of_device < share_from:
        return Clear(f"layout copies take {of_device:.1%} of the device's time")
    steps = facts.steady_count
    example, group = facts.signatures.groups(copies.operator)
    rows: list[dict[str, Any]] = []
    for at, event in enumerate(example.tolist()):
        mine = group == at
        call = facts.signatures.of(event)
        source = call.tensor(1) if call else None
        first = int(np.argmax(mine))
        rows.append(
            {
                "by": trace.name_of(int(copies.root[first])),
                "inside": trace.name_of(int(copies.above[first])) if copies.above[first] >= 0 else "",
                "shape": "x".join(map(str, source.shape)) if source else "",
                "strides": "x".join(map(str, source.strides)) if source and source.strides else "",
                "count": int(mine.sum()) / steps,
                "device": float(facts.leaves.time[copies.leaf[mine]].sum()) / steps,
            }
        )
    rows.sort(key=lambda row: -row["device"])
    device = facts.leaves.rows(copies.leaf)
    return Found(
        values={
            "copies": counted(len(copies.leaf) / steps, "copy", "copies"),
            "per": per(facts),
            "device": time(device_ns),
            "share": share(of_device),
            "host": time(host_ns),
        },
        change=remove(facts, trace.device_work[device]),
        fix=_CHANNELS_LAST if _convolves(facts, copies) else None,
        evidence=[
            table(
                "Copies into another order",
                [
                    TableColumn("by", "text", "made by"),
                    INSIDE,
                    TableColumn("shape", "text", "shape"),
                    TableColumn("strides", "text", "strides before"),
                    COUNT,
                    DEVICE,
                ],
                rows,
            )
        ],
        location=locate(facts, int(copies.root[np.argmax(facts.leaves.time[copies.leaf])])),
        events=claim(facts, device),
    )


_CHANNELS_LAST = (
    "Give the model and its input the same layout: `model.to(memory_format=torch.channels_last)` and "
    "`x.to(memory_format=torch.channels_last)`; a convolution copies what does not have its own."
)


def _convolves(facts: Facts, copies: Copies) -> bool:
    """Whether convolutions make most of the copies."""
    trace = facts.trace
    convolution = trace.name_mask(r"^aten::(?:\w*conv\w*)$")
    inside = nearest(facts.host.parent, convolution[trace.name], copies.operator) >= 0
    spent = facts.leaves.time[copies.leaf]
    return bool(spent[inside].sum() * 2 > spent.sum())


def _reordering(facts: Facts) -> Copies:
    """Copies directly under `clone` or `contiguous`, but for those that MEM103 is about."""
    copies = device_copies(facts)
    direct = np.isin(parent_name(facts, copies.operator).astype(str), ("aten::clone", "aten::contiguous"))
    duplicate = facts.trace.name_mask(OUT_OF_PLACE)
    theirs = (copies.above >= 0) & duplicate[facts.trace.name[np.maximum(copies.above, 0)]]
    return copies.of(direct & ~theirs)


def _same_type(facts: Facts, operator: int) -> bool:
    call = facts.signatures.of(operator)
    target, source = (call.tensor(0), call.tensor(1)) if call else (None, None)
    return target is not None and source is not None and target.dtype == source.dtype
