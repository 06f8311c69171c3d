"""KER105."""

from __future__ import annotations

import re

import numpy as np

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.roofline_evidence import no_roofline, per_step_ns, roof_table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.diagnose.select import compute_ns, counted, per
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof
from lanewise.measure.signatures import Tensor
from lanewise.report.quantity import text, time

_HALF = {"c10::BFloat16", "c10::Half"}
_ALIGN = re.compile(r"align[12](?!\d)")

# What a well-aligned product reaches; the gain is measured against it.
_REACHABLE = 0.70

_SMALLEST = 8


@rule(
    "KER105",
    "misaligned-gemm",
    title="{operators} ({top} first), {total} {per}, slowed by a dimension that is not a multiple of {multiple}.",
)
def misaligned_gemm(facts: Facts, *, share_from: float = 0.05) -> Outcome:
    """A matrix product whose rows do not start at aligned addresses.

    Tensor cores load 16 bytes at a time. With 16-bit types a row length that is not a multiple of 8 elements (16 with
    fp8) forces narrower loads, and the fast kernels cannot be used.

    Costs: its time, less what the same FLOPs take at 70 % of the peak.

    Fix: pad the dimension: vocabulary, hidden size or number of classes up to a multiple of 8, better of 64.

    Verify: the kernel's name no longer says `align1` or `align2`, and its time falls although it does more work.

    Silent: for fp32 kernels, whose `align1` means little, and for dimensions below 8.

    Source: torch/profiler/_pattern_matcher.py (matrix alignment); NVIDIA's matrix multiplication guide.
    """
    reason = no_roofline(facts)
    if reason is not None:
        return reason
    peak = facts.device.peak
    assert peak is not None
    compute, steps = compute_ns(facts), facts.steady_count
    roofs = [
        roof
        for roof in facts.roofline
        if roof.work is not None and roof.work.kind == "matmul" and _misaligned(facts, roof)
    ]
    total = sum(per_step_ns(facts, roof) for roof in roofs)
    if not roofs or total < share_from * compute:
        return Clear(f"misaligned products take {total / compute:.1%} of the computing time")
    least = 0.0
    for roof in roofs:
        rate = peak.flop_rate(roof.work.dtype) if roof.work else 0.0
        if roof.work and roof.work.flops and rate:
            least += roof.work.flops * roof.calls / steps / (_REACHABLE * rate) * 1e9
    narrow = any(roof.work and roof.work.dtype.startswith("c10::Float8") for roof in roofs)
    return Found(
        values={
            "operators": counted(len(roofs), "matrix product", "matrix products"),
            "top": text(roofs[0].name),
            "total": time(total),
            "per": per(facts),
            "multiple": text("16" if narrow else "8"),
        },
        change=rescale(
            facts, np.concatenate([facts.trace.device_work[roof.rows] for roof in roofs]), min(1.0, least / total)
        ),
        spread=0.3,
        evidence=[roof_table(facts, "Misaligned matrix products", roofs)],
        location=locate(facts, int(facts.trace.links.launch[roofs[0].rows[0]])),
        events=np.concatenate([facts.trace.device_work[roof.rows] for roof in roofs]).tolist(),
    )


def _misaligned(facts: Facts, roof: Roof) -> bool:
    dtype = roof.work.dtype if roof.work else ""
    if dtype not in _HALF and not dtype.startswith("c10::Float8"):
        return False
    multiple = 16 if dtype.startswith("c10::Float8") else 8
    call = facts.signatures.of(roof.operator)
    matrices = [t for t in call.tensors if len(t.shape) >= 2 and t.dtype == dtype][-2:] if call else []
    if any(min(tensor.shape[-2:]) < _SMALLEST for tensor in matrices):
        return False
    if any(_row_length(tensor) % multiple for tensor in matrices):
        return True
    names = (facts.trace.name_of(int(facts.trace.device_work[row])) for row in roof.rows[:4])
    return any(_ALIGN.search(name) for name in names)


def _row_length(tensor: Tensor) -> int:
    """Elements from one row of the matrix in memory to the next: the leading dimension that the library sees."""
    if tensor.strides is not None and len(tensor.strides) == len(tensor.shape):
        inner = sorted(tensor.strides[-2:])
        return inner[1] if inner[0] == 1 else inner[0]
    return tensor.shape[-1]
