"""KER113."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import compute_ns, per
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, DURATION, KERNEL, SHAPES
from lanewise.report.quantity import share, text, time

_GENERIC = r"implicit_convolve_sgemm|wgrad_alg0|explicit_convolve|im2col|col2im|precomp_sgemm"


@rule(
    "KER113",
    "conv-autotune",
    title="Generic convolution kernels ({kernel} first) take {total} {per}, {share} of the computing time; with "
    "fixed shapes "
    "cuDNN can search for better ones.",
)
def conv_autotune(facts: Facts, *, share_from: float = 0.05) -> Outcome:
    """cuDNN chose its kernels by rule of thumb.

    Without a search the library picks an algorithm from the shapes alone, sometimes one that works everywhere and is
    fast nowhere. With fixed shapes it can try all of them once and keep the fastest.

    Costs: not estimated: how much faster the best algorithm is, only the search can tell.

    Fix: `torch.backends.cudnn.benchmark = True` before the first step, and warm every shape up before measuring.

    Verify: other kernel names, a shorter step.

    Silent: where shapes vary between steps: each new shape would be searched again.

    Source: PyTorch's performance tuning guide.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    generic = trace.name_mask(_GENERIC)
    groups = [group for group in facts.kernel_groups if generic[trace.name[group.example]]]
    steps, compute = facts.steady_count, compute_ns(facts)
    total = sum(group.total for group in groups) / steps
    if not groups or total < share_from * compute:
        return Clear(f"generic convolution kernels take {total / compute:.1%} of the computing time")
    if not facts.health.shapes:
        return NeedsCapture("shapes, to see whether they are fixed: `record_shapes=True`")
    if not all(_in_every_step(facts, group.rows) for group in groups):
        return Clear("the convolutions' shapes vary between steps")
    rows: list[dict[str, Any]] = [
        {
            "kernel": kernel_label(facts, group.example),
            "shapes": shapes_label(facts, group.operator),
            "count": len(group.rows) / steps,
            "duration": group.total / len(group.rows),
        }
        for group in groups
    ]
    return Found(
        values={
            "kernel": text(kernel_label(facts, groups[0].example)),
            "total": time(total),
            "per": per(facts),
            "share": share(total / compute),
        },
        confidence="medium",
        evidence=[table("Generic convolution kernels", [KERNEL, SHAPES, COUNT, DURATION], rows)],
        location=locate(facts, groups[0].call),
    )


def _in_every_step(facts: Facts, rows: np.ndarray) -> bool:
    """Whether kernels of one identity, shapes included, run equally often in each steady step."""
    step = facts.trace.steps.of_event[facts.trace.device_work[rows]]
    counts = np.bincount(step, minlength=len(facts.steps.steady))[facts.steps.steady]
    return bool(len(counts) == 0 or (counts == counts[0]).all())
