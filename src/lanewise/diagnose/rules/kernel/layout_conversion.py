"""KER107."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_rows, device_sum, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.report.evidence_columns import COUNT, OPERATOR, SHAPES, TOTAL, headed
from lanewise.report.quantity import share, time
from lanewise.trace.schema import Kind

_CONVERSION = r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose_"


@rule(
    "KER107",
    "layout-conversion",
    title="{conversions} {per} between channels-first and channels-last: {total}, {share} of the device's time.",
)
def layout_conversion(facts: Facts, *, share_from: float = 0.02, per_step_from: float = 2.0) -> Outcome:
    """The convolution library converts layouts around each convolution.

    Tensor-core convolutions work on channels-last data. torch's default is channels-first, so the library converts the
    input before each convolution and the result after it: two passes over memory and two launches each.

    Costs: the conversions' time (device-bound), or the calls that launch them (host-bound).

    Fix: `model.to(memory_format=torch.channels_last)` and the same for the input; the layout then stays through the
    network. Where shapes do not change, `torch.backends.cudnn.benchmark = True` may find kernels that need no conversion.

    Verify: no `nchwToNhwc` or `nhwcToNchw` kernels are left.

    Silent: for a single conversion at the entry of the model.

    Source: PyTorch's channels-last tutorial; 27 % of the device's time in a half-precision network on our H100; six
    convolutions in fp32 on an H200, whose conversions were gone with cuDNN's search (benchmarks/replay, cudnn_benchmark).
    """
    trace = facts.trace
    kernels = device_rows(facts, Kind.KERNEL)
    if len(kernels) == 0:
        return NotApplicable("the trace holds no kernels in steady steps")
    rows = kernels[trace.name_mask(_CONVERSION)[trace.name[trace.device_work[kernels]]]]
    steps = facts.steady_count
    everything = max(1.0, device_sum(facts, device_rows(facts)))
    total = device_sum(facts, rows)
    if len(rows) / steps < per_step_from or total < share_from * everything:
        return Clear(
            f"{len(rows) / steps:g} layout conversions per step, {total / everything:.1%} of the device's time"
        )
    calls = trace.links.launch[rows]
    linked = calls[calls >= 0]
    operators = trace.links.operator[rows]
    # Without operators the kernels speak for themselves.
    example, group = facts.signatures.groups(np.where(operators >= 0, operators, trace.device_work[rows]))
    duration = trace.duration[trace.device_work[rows]]
    table_rows: list[dict[str, Any]] = [
        {
            "operator": short_name(trace.name_of(int(operator))),
            "shapes": shapes_label(facts, int(operator)),
            "count": int((group == at).sum()) / steps,
            "total": float(duration[group == at].sum()) / steps,
        }
        for at, operator in enumerate(example.tolist())
    ]
    table_rows.sort(key=lambda row: -row["total"])
    return Found(
        values={
            "conversions": counted(len(rows) / steps, "layout conversion", "layout conversions"),
            "per": per(facts),
            "total": time(total),
            "share": share(total / everything),
        },
        change=remove(facts, trace.device_work[rows]),
        evidence=[
            table(
                "Conversions by operator",
                [OPERATOR, SHAPES, headed(COUNT, "conversions per step"), headed(TOTAL, "time per step")],
                table_rows,
            )
        ],
        location=locate(facts, int(linked[0])) if len(linked) else None,
        events=claim(facts, rows),
    )
