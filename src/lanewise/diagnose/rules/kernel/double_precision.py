"""KER114."""

from __future__ import annotations

import re

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, shapes_label, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import compute_ns, per
from lanewise.diagnose.what_if.remedies import rescale
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.kernel_groups import KernelGroup
from lanewise.report.evidence_columns import COUNT, KERNEL, OPERATOR, SHAPES, SITE, TIME, headed
from lanewise.report.quantity import share, time

# How names spell the type where no shapes were recorded; `double` among a kernel's arguments proves nothing.
_NAMED = re.compile(r"dgemm|dgemv|f64f64|_f64|<double\b|\bdouble>")
_FLOATING = ("float", "double", "c10::Half", "c10::BFloat16")

# What matrix work in single precision, without TF32, takes of its time in double. The rates per compute capability; where
# double precision has tensor cores of its own little is won: 0.85 measured on an H200. Elsewhere double precision is 32 or
# 64 times slower, and memory then limits.
_MATRIX_LEFT = {(6, 0): 0.5, (7, 0): 0.5, (8, 0): 1.0, (9, 0): 0.85, (10, 0): 0.5}
_MATRIX_LEFT_ELSEWHERE = 0.1
# All other work reads and writes half of the bytes.
_LEFT = 0.5


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    if not contexts.kernels.any():
        return NotApplicable("the tree holds no kernels")
    mine = contexts.kernels & contexts.kernels_named(_NAMED.pattern)
    total = float(contexts.device[mine].sum())
    if total < share_from * contexts.compute_ns:
        return Clear(f"double precision takes {total / contexts.compute_ns:.1%} of the computing time")
    rows = np.flatnonzero(mine)
    return Found(
        values={"share": share(total / contexts.compute_ns), "total": time(total), "per": contexts.per},
        saves=contexts.saving(mine, kept=_LEFT),
        confidence="medium",
        evidence=[
            table(
                "Kernels in double precision",
                [headed(SITE, "kernel"), headed(COUNT, "kernels"), TIME],
                contexts.by_name(rows, count=contexts.count[rows], time=contexts.device[rows]),
            )
        ],
        location=contexts.location(int(rows[np.argmax(contexts.device[rows])])),
    )


@rule(
    "KER114",
    "double-precision",
    of_tree=_of_tree,
    title="{share} of the GPU's computing time ({total} {per}) is double precision.",
)
def double_precision(facts: Facts, *, share_from: float = 0.05) -> Outcome:
    """Kernels compute in float64, which takes twice the memory of float32 and runs on far fewer units.

    In PyTorch float64 is rarely chosen: it comes in with a NumPy array, whose type is float64 unless told otherwise, with
    `torch.set_default_dtype`, or with `.double()` for a check that stayed. Everything computed from such a tensor is
    float64, too. Cards made for graphics do one operation in double precision where they do 32 or 64 in single.

    Costs: half of the time of kernels that memory limits; of matrix products what the card's units for single precision
    would save, next to nothing on cards whose tensor cores multiply float64 (A100, H100).

    Fix: make the tensor float32 where it enters the program, `torch.from_numpy(array.astype("float32"))` or
    `tensor.float()`, and the model with `model.float()`. Keep float64 where digits beyond the seventh are needed.

    Verify: `double`, `f64` and `dgemm` are gone from kernel names, results agree to about six digits, the step is shorter.

    Silent: for float64 scalars that a kernel gets as an argument, and where double precision takes less than a twentieth of
    the computing time. Complex numbers are not looked at.

    Source: NVIDIA's CUDA programming guide, arithmetic throughput by compute capability; NumPy's default type.
    """
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    steps, compute = facts.steady_count, compute_ns(facts)
    groups = [g for g in facts.kernel_groups if _is_double(facts, g)]
    total = sum(g.total for g in groups) / steps
    if not groups or total < share_from * compute:
        return Clear(f"double precision takes {total / compute if compute else 0:.1%} of the computing time")
    work = facts.trace.device_work
    rows = np.concatenate([g.rows for g in groups])
    matrix = facts.is_family("gemm", "convolution", "attention", "gemm helper")[rows]
    events = work[rows]
    return Found(
        values={"share": share(total / compute), "total": time(total), "per": per(facts)},
        change=rescale(facts, events, np.where(matrix, _matrix_left(facts), _LEFT)),
        spread=0.3,
        confidence="high" if all(_types(facts, g) for g in groups) else "medium",
        evidence=[
            table(
                "Kernels in double precision",
                [KERNEL, OPERATOR, SHAPES, COUNT, headed(TIME, "time per step")],
                [
                    {
                        "kernel": kernel_label(facts, g.example),
                        "operator": facts.trace.name_of(g.operator) if g.operator >= 0 else "",
                        "shapes": shapes_label(facts, g.operator),
                        "count": len(g.rows) / steps,
                        "time": g.total / steps,
                    }
                    for g in groups
                ],
            )
        ],
        location=locate(facts, groups[0].call),
        events=events.tolist(),
    )


def _types(facts: Facts, group: KernelGroup) -> set[str]:
    """Floating-point types of the operator's tensors, scalars left out; empty where they were not recorded."""
    signature = facts.signatures.of(group.operator)
    return {t.dtype for t in signature.tensors if t.dtype in _FLOATING and t.shape} if signature else set()


def _is_double(facts: Facts, group: KernelGroup) -> bool:
    types = _types(facts, group)
    return "double" in types if types else bool(_NAMED.search(facts.trace.name_of(group.example)))


def _matrix_left(facts: Facts) -> float:
    device = facts.device
    return _LEFT if device.vendor != "nvidia" else _MATRIX_LEFT.get(device.compute, _MATRIX_LEFT_ELSEWHERE)
