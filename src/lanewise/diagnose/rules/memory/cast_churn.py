"""MEM106."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.device_copies import Copies, cost_of, device_copies, host_of_each, share_of_time
from lanewise.diagnose.evidence import locate, steady_count, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, per, sites
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.quantity import share, time
from lanewise.trace.nesting import nearest


@rule(
    "MEM106",
    "cast-churn",
    title="{casts} {per} of tensors from one type to another ({device} on the GPU, {of_device} of its time; {host} "
    "on the host, {of_host} of its).",
)
def cast_churn(facts: Facts, *, share_from: float = 0.05, per_step_from: float = 2.0) -> Outcome:
    """The same data is converted between types again and again.

    Each conversion reads and writes the whole tensor and costs a launch. Autocast and hand-written norms convert around
    every operation; parameters kept in another type than they are used in are converted at each use.

    Costs: the conversions (device-bound), or the operators that make them (host-bound).

    Fix: keep parameters in the type in which they are used, let autocast cache its casts, or let torch.compile fuse the
    conversions into their neighbours.

    Verify: their share falls.

    Silent: for a single conversion, such as the scaling of a loss.

    Source: PyTorch's performance tuning guide.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    casts = _conversions(facts)
    steps = steady_count(facts)
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
        confidence="high" if facts.health.shapes else "medium",
        evidence=[
            table(
                "Conversions",
                {
                    "site": ("text", "made by"),
                    "types": ("text", "from, to"),
                    "count": ("count", "per step"),
                    "device": ("time", "device time"),
                    "host": ("time", "host time"),
                },
                rows,
            )
        ],
        location=locate(facts, int(casts.root[np.argmax(facts.leaves.time[casts.leaf])])),
        events=claim(facts, device),
    )


def _conversions(facts: Facts) -> Copies:
    """Copies under `_to_copy`; with shapes those whose types differ, without them all: they have few other reasons."""
    trace = facts.trace
    copies = device_copies(facts)
    converting = np.zeros(len(trace.names), dtype=bool)
    converting[trace.name_ids("aten::_to_copy")] = True
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
