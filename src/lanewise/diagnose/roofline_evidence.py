"""What the rules about the roofline share: when it can be drawn at all, and how an operator reads in a table."""

from __future__ import annotations

from typing import Any

from lanewise.diagnose.evidence import kernel_label, shapes_label, table
from lanewise.diagnose.rule import NeedsCapture, NotApplicable
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof
from lanewise.report.evidence_columns import COUNT, DURATION, KERNEL, OPERATOR, SHAPES
from lanewise.report.model import TableBlock, TableColumn

__all__ = ["no_roofline", "per_step_ns", "roof_table"]


def no_roofline(facts: Facts) -> NotApplicable | NeedsCapture | None:
    """Why the roofline of this trace cannot be drawn; None if it can."""
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    if not facts.health.shapes:
        return NeedsCapture("shapes: `record_shapes=True` in the profiler, or `lanewise run --shapes`")
    if facts.device.peak is None:
        return NotApplicable(f"no peak rates are known for {facts.device.name or 'this device'}")
    return None


def per_step_ns(facts: Facts, roof: Roof) -> float:
    """Device time of a group of calls, ns per step."""
    return roof.time / facts.steady_count


def roof_table(facts: Facts, title: str, roofs: list[Roof]) -> TableBlock:
    """Operators with what they do and how far from the peaks that is."""
    rows: list[dict[str, Any]] = []
    for roof in roofs:
        longest = max(roof.rows.tolist(), key=lambda row: int(facts.trace.duration[facts.trace.device_work[row]]))
        rows.append(
            {
                "operator": roof.name,
                "shapes": shapes_label(facts, roof.operator),
                "kernel": kernel_label(facts, int(facts.trace.device_work[longest])),
                "count": roof.calls / facts.steady_count,
                "duration": roof.time / roof.calls,
                "flops": f"{roof.flop_rate / 1e12:.3g} TFLOP/s" if roof.flop_rate == roof.flop_rate else "",
                "of_compute": roof.of_compute,
                "rate": roof.byte_rate,
                "of_memory": roof.of_memory,
            }
        )
    return table(
        title,
        [
            OPERATOR,
            SHAPES,
            KERNEL,
            COUNT,
            DURATION,
            TableColumn("flops", "text", "computes"),
            TableColumn("of_compute", "share", "of its peak"),
            TableColumn("rate", "bandwidth", "moves"),
            TableColumn("of_memory", "share", "of the memory's peak"),
        ],
        rows,
    )
