"""KER104."""

from __future__ import annotations

import re

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import compute_ns, per
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.kernel_groups import KernelGroup
from lanewise.measure.kernel_names import family
from lanewise.report.evidence_columns import COUNT, DURATION, KERNEL, OPERATOR, SHAPES
from lanewise.report.model import Block, TextBlock
from lanewise.report.quantity import share, time

# Double precision has its own units; a product with a vector is limited by memory, whatever computes it.
_NOT_MEANT = re.compile(r"dgemm|_f64|f64f64|double|gemv|gemmk1|dot_kernel", re.IGNORECASE)

# No card runs fp32 on tensor cores more than this much faster than on its plain units; for cards without a known peak.
_MOST = 8.0

_HALF_ONLY = (
    "autocast to fp16, with a `torch.amp.GradScaler` in training, where the model's accuracy allows it: the tensor cores "
    "of this generation of cards multiply neither TF32 nor bf16."
)
_FIRST_WITH_TF32 = (8, 0)


@rule(
    "KER104",
    "tensor-cores-unused",
    title="Matrix kernels that take {share} of the computing time ({total} {per}) run on the plain FP32 units; the "
    "tensor cores stay idle.",
)
def tensor_cores_unused(facts: Facts, *, share_from: float = 0.05, kernel_from_us: float = 10.0) -> Outcome:
    """Matrix multiplications or convolutions run without the units that are made for them.

    In full fp32 precision a GPU multiplies on its plain units: on an H100 67 TFLOP/s against 495 with TF32 and 989 with
    bf16. torch keeps full precision for matrix multiplications unless told otherwise.

    Costs: the kernels' time, less what the same work would take at the tensor cores' rate with TF32; the finding says what
    it would take in bf16, too, which asks for more than a switch.

    Fix: `torch.set_float32_matmul_precision("high")` (TF32: fp32 storage, 10 bits of mantissa in the products), or
    autocast to bf16, where the model's accuracy allows it. Convolutions have a switch of their own,
    `torch.backends.cudnn.allow_tf32`, which is on unless it was turned off. Cards before compute capability 8.0 know
    neither: fp16 there.

    Verify: kernel names change (`tensorop`, `s1688`, `nvjet`), the results stay within the error that you accept, the
    step gets shorter.

    Silent: for double precision, for products with a vector (limited by memory), for kernels below 10 us, and on
    devices without tensor cores. `xmma` or `gemm` in a name proves nothing; `ffma` and `simt` do.

    Source: torch/profiler/_pattern_matcher.py (FP32MatMulPattern); NVIDIA's CUDA programming guide, compute
    capabilities (TF32 and bf16 on tensor cores from 8.0); 2.7 against 0.4 ms for a 4096 cube on our H100.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    if facts.device.vendor == "amd":
        return NotApplicable("the names of AMD's matrix kernels do not tell plain units from matrix cores")
    if facts.device.has_tensor_cores is False:
        return NotApplicable("the device has no tensor cores")
    steps, compute = facts.steady_count, compute_ns(facts)
    groups = [
        g
        for g in facts.kernel_groups
        if facts.tensor_cores_of_name[trace.name[g.example]] == 0
        and _meant(facts, g)
        and g.total / len(g.rows) >= kernel_from_us * 1e3
    ]
    total = sum(g.total for g in groups) / steps
    if total < share_from * compute or not groups:
        return Clear(f"matrix kernels without tensor cores take {total / compute:.1%} of the computing time")
    rows = [
        {
            "kernel": kernel_label(facts, g.example),
            "shapes": shapes_label(facts, g.operator),
            "operator": trace.name_of(g.operator) if g.operator >= 0 else "",
            "count": len(g.rows) / steps,
            "duration": g.total / len(g.rows),
        }
        for g in groups
    ]
    peak = facts.device.peak
    half_only = facts.device.vendor == "nvidia" and (0, 0) < facts.device.compute < _FIRST_WITH_TF32
    part = 1 - peak.fp32 / peak.tf32 if peak and peak.tf32 else 1 - 1 / _MOST
    return Found(
        values={"share": share(total / compute), "total": time(total), "per": per(facts)},
        change=rescale(facts, np.concatenate([trace.device_work[g.rows] for g in groups]), 1 - part),
        spread=0.3,
        confidence="high" if peak and peak.tf32 else "low",
        evidence=[
            table("Matrix kernels without tensor cores", [KERNEL, OPERATOR, SHAPES, COUNT, DURATION], rows),
            *_by_type(facts, total),
        ],
        location=locate(facts, groups[0].call),
        fix=_HALF_ONLY if half_only else _fix(facts, groups),
        events=np.concatenate([trace.device_work[g.rows] for g in groups]).tolist(),
    )


def _by_type(facts: Facts, total: float) -> list[Block]:
    """What the kernels would take in either type; what is said to be gained is that of TF32, a switch."""
    peak = facts.device.peak
    if peak is None or not peak.tf32 or not peak.half:
        return []
    return [
        TextBlock(
            "At the card's rates these kernels take about {tf32} in TF32, which is what the gain says, and {half} in bf16, "
            "where what runs between them moves half of the bytes, too; {total} now.",
            {
                "tf32": time(total * peak.fp32 / peak.tf32),
                "half": time(total * peak.fp32 / peak.half),
                "total": time(total),
            },
        )
    ]


def _meant(facts: Facts, group: KernelGroup) -> bool:
    if _NOT_MEANT.search(facts.trace.name_of(group.example)):
        return False
    signature = facts.signatures.of(group.operator)
    return signature is None or not any(t.dtype == "double" for t in signature.tensors)


def _fix(facts: Facts, groups: list[KernelGroup]) -> str | None:
    """By what the kernels are: convolutions and products are switched apart. None where all are products."""
    trace = facts.trace
    convolutions = [
        family(trace.name_of(g.example)) == "convolution"
        or (g.operator >= 0 and "conv" in trace.name_of(g.operator).lower())
        for g in groups
    ]
    if not any(convolutions):
        return None
    switch = "`torch.backends.cudnn.allow_tf32 = True` for the convolutions (its default: something turned it off)"
    if not all(convolutions):
        switch += ', `torch.set_float32_matmul_precision("high")` for the products'
    return f"{switch}, or autocast to bf16, where the model's accuracy allows it."
