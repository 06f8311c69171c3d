"""KER102."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.roofline_evidence import no_roofline, per_step_ns, roof_table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.diagnose.select import compute_ns, counted, per
from lanewise.diagnose.what_if.fitting import mostly_compiled
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof
from lanewise.report.quantity import bandwidth, share, text, time
from lanewise.trace.schema import Kind

_COMPILED = (
    "This code is compiled already, and the compiler fused what it could: use a narrower type, work on less data, or write "
    "the operation into its neighbour by hand (a Triton kernel, an epilogue of the product)."
)


@rule(
    "KER102",
    "memory-bound-kernel",
    title="{operators} ({top} first) running at memory speed, {total} {per}: {rate}, {of_memory} of the peak. Only "
    "moving fewer bytes helps.",
)
def memory_bound_kernel(
    facts: Facts, *, share_from: float = 0.05, of_memory_from: float = 0.60, of_compute_below: float = 0.30
) -> Outcome:
    """Operators whose time is what it takes to read and write their tensors once.

    They run close to the memory's bandwidth and far from the computing peak: no better kernel helps, only moving fewer
    bytes.

    Costs: their time, less one write of the result, if the operation were fused into what produces its input.

    Fix: fuse the operation with its neighbours (torch.compile, a fused kernel), use a narrower type, work in place.

    Verify: the kernel disappears, or its bytes go down.

    Silent: where the working set fits in the cache: the memory's bandwidth does not limit it then. An operation with no
    other kernel beside it in its steps has nothing to be fused with: it is noted, without a gain.

    Source: "Making Deep Learning Go Brrrr From First Principles"; TraceLens.
    """
    reason = no_roofline(facts)
    if reason is not None:
        return reason
    compute, steps = compute_ns(facts), facts.steady_count
    peak = facts.device.peak
    assert peak is not None
    roofs = [
        roof
        for roof in facts.roofline
        if roof.work is not None
        and roof.of_memory >= of_memory_from
        and not roof.of_compute >= of_compute_below
        and per_step_ns(facts, roof) >= share_from * compute
    ]
    if not roofs:
        return Clear("no operator with a large share moves data at the memory's bandwidth")
    total = sum(per_step_ns(facts, roof) for roof in roofs)
    kept = sum(
        roof.work.written * roof.calls / steps / peak.bandwidth * 1e9 if _has_neighbours(facts, roof) else per_step
        for roof, per_step in ((roof, per_step_ns(facts, roof)) for roof in roofs)
        if roof.work
    )
    top = roofs[0]
    launch = facts.trace.links.launch
    call = int(launch[top.rows[0]])
    return Found(
        values={
            "operators": counted(len(roofs), "operator", "operators"),
            "top": text(top.name),
            "rate": bandwidth(top.byte_rate),
            "of_memory": share(top.of_memory),
            "total": time(total),
            "per": per(facts),
        },
        change=rescale(
            facts, np.concatenate([facts.trace.device_work[roof.rows] for roof in roofs]), min(1.0, kept / total)
        ),
        bound=True,
        fix=_COMPILED if mostly_compiled(facts, np.concatenate([launch[roof.rows] for roof in roofs])) else None,
        confidence="high" if all(roof.work and roof.work.exact for roof in roofs) else "medium",
        evidence=[roof_table(facts, f"Against the peaks of {peak.card}", roofs)],
        location=locate(facts, call),
        events=np.concatenate([facts.trace.device_work[roof.rows] for roof in roofs]).tolist(),
    )


def _has_neighbours(facts: Facts, roof: Roof) -> bool:
    """Whether anything else computes in the steps of an operator."""
    steps = facts.trace.steps.of_event[facts.trace.device_work]
    kernels = np.isin(steps, np.unique(steps[roof.rows]))
    kernels &= facts.trace.kind[facts.trace.device_work] == Kind.KERNEL
    kernels[roof.rows] = False
    return bool((kernels & ~facts.is_family("communication")).any())
