"""KER110."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.roofline_evidence import no_roofline, per_step_ns, roof_table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.diagnose.select import compute_ns, per
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.report.quantity import bandwidth, byte_size, count, share, time


@rule(
    "KER110",
    "matvec-decode",
    regimes=("compute", "mixed"),
    title="Products with at most {rows} rows read {bytes} of weights {per} at {rate}, {of_memory} of what the "
    "memory can deliver: "
    "reading the weights sets the speed ({total}).",
)
def matvec_decode(
    facts: Facts,
    *,
    rows_up_to: int = 8,
    of_memory_from: float = 0.60,
    share_from: float = 0.05,
    compression: float = 2.0,
) -> Outcome:
    """Each weight is read for a handful of rows, as when a language model generates token by token.

    With so few rows a matrix product does two FLOPs per weight and row, while reading the weight takes far longer. The
    memory's bandwidth, not the computing rate, sets the time of a token.

    Costs: the products' time, less what the same weights take at half the size.

    Fix: weight-only quantisation (int8 or int4), a larger batch (the same read serves more rows), speculative decoding.

    Verify: tokens per second rise; bytes read per token fall.

    Silent: unless the device is the bottleneck: a host-bound decode loop gains nothing from smaller weights.

    Source: gpt-fast.
    """
    reason = no_roofline(facts)
    if reason is not None:
        return reason
    peak = facts.device.peak
    assert peak is not None
    thin = [
        roof
        for roof in facts.roofline
        if roof.work is not None and roof.work.kind == "matmul" and 0 < roof.work.rows <= rows_up_to
    ]
    compute, steps = compute_ns(facts), facts.steady_count
    total = sum(per_step_ns(facts, roof) for roof in thin)
    if total < share_from * compute:
        return Clear(f"products with at most {rows_up_to} rows take {total / compute:.1%} of the computing time")
    read = sum(roof.work.bytes * roof.calls for roof in thin if roof.work) / steps
    if read < peak.l2:
        return Clear("the weights fit in the cache: the memory's bandwidth does not limit the products")
    rate = read / total * 1e9
    if rate < of_memory_from * peak.bandwidth:
        return Clear(f"the products read their weights at {rate / peak.bandwidth:.0%} of the memory's bandwidth")
    rows = max(roof.work.rows for roof in thin if roof.work)
    return Found(
        values={
            "rows": count(rows),
            "bytes": byte_size(read),
            "per": per(facts),
            "rate": bandwidth(rate),
            "of_memory": share(rate / peak.bandwidth),
            "total": time(total),
        },
        change=rescale(facts, np.concatenate([facts.trace.device_work[roof.rows] for roof in thin]), 1 / compression),
        bound=True,
        evidence=[roof_table(facts, f"Against the peaks of {peak.card}", thin)],
        location=locate(facts, int(facts.trace.links.launch[thin[0].rows[0]])),
        events=np.concatenate([facts.trace.device_work[roof.rows] for roof in thin]).tolist(),
    )
