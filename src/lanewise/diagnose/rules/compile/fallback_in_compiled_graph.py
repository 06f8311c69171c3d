"""CMP107."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.compile.compilation import inside_compilation
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, KERNEL, OPERATOR, TIME, headed
from lanewise.report.quantity import share, text, time

_FALLBACKS = ("pointwise", "reduction", "copy kernel", "softmax", "normalisation", "embedding and indexing")


@rule(
    "CMP107",
    "fallback-in-compiled-graph",
    title="Compiled graphs hold {kernels} {per} besides what was fused ({time}, {share} of the graphs' device time), "
    "most of it {operator}.",
)
def fallback_in_compiled_graph(facts: Facts, *, share_from: float = 0.1) -> Outcome:
    """Inside a compiled graph some operators still run as separate eager kernels.

    The compiler falls back to the eager kernel for operators without a lowering, for unusual layouts or types, and
    where it was told to. Each fallback reads and writes memory that a fused kernel would keep on the chip, and
    separates what stands on either side of it.

    Costs: at most the device time of these kernels.

    Fix: per operator; `TORCH_LOGS=output_code` shows the graph with its `extern_kernels` and `aten` calls. Replace the
    operator by ones with a lowering, or register one.

    Verify: the operator's name appears in a `triton_*_fused_*` kernel.

    Silent: for matrix products, convolutions, attention and collectives, which stay library kernels, and at 10 % of the
    graphs' device time or less.

    Source: huggingface/blog torch-mlp-fusion; PyTorch's inductor documentation.
    """
    trace, links, regions = facts.trace, facts.trace.links, facts.regions
    if len(regions.graph_call) == 0:
        return NotApplicable("no compiled graph is called")
    calls = facts.launches.call[regions.graph_of_call >= 0]
    calls = calls[~inside_compilation(facts, calls)]
    work = trace.device_work
    inside = np.flatnonzero(np.isin(links.launch, calls) & (links.launch >= 0))
    inside = inside[np.isin(work[inside], facts.steady_events(work[inside]))]
    if len(inside) == 0:
        return Clear("compiled graphs start no device work in steady steps")
    event = work[inside]
    total = int(trace.duration[event].sum())
    triton = trace.name_mask(r"^triton_")[trace.name[event]]
    eager = facts.is_family(*_FALLBACKS)[inside] & ~triton
    part = int(trace.duration[event[eager]].sum()) / max(1, total)
    if part <= share_from:
        return Clear(f"eager kernels are {part:.1%} of the device time of compiled graphs")
    steps = facts.steady_count
    operator = links.operator[inside[eager]]
    label = np.where(operator >= 0, trace.name[np.maximum(operator, 0)], trace.name[event[eager]]).astype(np.int64)
    time_of = np.bincount(label, weights=trace.duration[event[eager]], minlength=len(trace.names))
    number = np.bincount(label, minlength=len(trace.names))
    rows = [
        {
            "operator": trace.names[int(n)],
            "count": round(float(number[n]) / steps, 1),
            "time": float(time_of[n]) / steps,
        }
        for n in np.argsort(-time_of, kind="stable")[:8].tolist()
        if number[n]
    ]
    fused = sorted({trace.names[int(n)] for n in np.unique(trace.name[event[triton]]).tolist()})
    evidence = [
        table("Eager kernels inside compiled graphs", [OPERATOR, COUNT, headed(TIME, "device time per step")], rows)
    ]
    if fused:
        evidence.append(table("What was fused", [KERNEL], [{"kernel": name} for name in fused]))
    gain = float(trace.duration[event[eager]].sum()) / steps
    return Found(
        values={
            "kernels": counted(int(eager.sum()) / steps, "eager kernel", "eager kernels"),
            "time": time(gain),
            "share": share(part),
            "operator": text(str(rows[0]["operator"])),
            "per": per(facts),
        },
        change=remove(facts, event[eager]),
        bound=True,
        confidence="medium",
        evidence=evidence,
        location=locate(facts, int(links.launch[inside[eager]][0])),
        events=np.unique(links.launch[inside[eager]]).tolist(),
    )
