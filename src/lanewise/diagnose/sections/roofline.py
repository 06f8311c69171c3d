"""How far operators are from what the card can do."""

from __future__ import annotations

import math

import numpy as np

from lanewise.diagnose.evidence import shapes_label
from lanewise.diagnose.sections.section import Section, Source
from lanewise.measure.columns import Columns
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.roofline import Roof, roofline_table
from lanewise.report.evidence_columns import BYTES, CALLS, FLOP_RATE, OPERATOR, SHAPES, SHARE, TIME, Headings, headed
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import bandwidth, flop_rate, share, text

__all__ = ["reached", "reached_statement", "roofline_section"]

_HEADINGS: Headings = [
    OPERATOR,
    SHAPES,
    headed(TIME, "device time"),
    TableColumn("bound", "text", "limited by"),
    TableColumn("of_roof", "share", "of that"),
    SHARE,
    headed(CALLS, "calls"),
    TableColumn("of_compute", "share", "of compute peak"),
    TableColumn("of_memory", "share", "of memory peak"),
    FLOP_RATE,
    TableColumn("byte_rate", "bandwidth", "moves"),
    TableColumn("flops", "flops", "work per call"),
    headed(BYTES, "bytes per call"),
]

_NEARLY_ALL = 0.99


def roofline_section(facts: Facts) -> Section:
    """Operators of the steady steps by arguments: work, achieved rates, shares of the card's peaks."""
    data = roofline_table(facts)
    if data.height == 0:
        none = facts.device_records != "some"
        why = "The trace holds no device work." if none else "No operator of a steady step has device work of its own."
        return Section([TextBlock(why)], {})
    total = max(1, int(data["time"].sum()))
    shapes = np.empty(data.height, dtype=object)
    shapes[:] = [shapes_label(facts, int(event)) for event in data["event"].tolist()]
    achieved = [_achieved(roof) for roof in facts.roofline]
    of_roof = np.array([math.nan if value is None else value for value in achieved])
    data = Columns({**data, "shapes": shapes, "share": data["time"] / total, "of_roof": of_roof})
    return Section(
        _statements(facts, total), {"roofline": Source("Operators under the roofline, steady steps", data, _HEADINGS)}
    )


def _statements(facts: Facts, total: int) -> list[TextBlock]:
    if not facts.health.shapes:
        hint = "record_shapes=True in the profiler, or lanewise run --shapes"
        return [TextBlock(f"The trace holds no shapes, so the work of an operator is unknown: record them ({hint}).")]
    peak = facts.device.peak
    if peak is None:
        return [
            TextBlock("No peak rates are known for {device}.", {"device": text(facts.device.name or "this device")})
        ]
    roofs = TextBlock(
        "{card} at most: {half} in half precision and {tf32} in TF32 on tensor cores, {fp32} in FP32, {memory} of memory "
        "bandwidth ({source}).",
        {
            "card": text(peak.card),
            "half": flop_rate(peak.half),
            "tf32": flop_rate(peak.tf32),
            "fp32": flop_rate(peak.fp32),
            "memory": bandwidth(peak.bandwidth),
            "source": text(peak.source + ("" if peak.verified else ", not checked")),
        },
    )
    told = reached_statement(facts) or TextBlock("For no operator are both its work and the peak that limits it known.")
    return [roofs, told]


def reached_statement(facts: Facts) -> TextBlock | None:
    """What operators reach of their roofs, in a sentence; None where none has one."""
    achieved = reached(facts)
    if achieved is None:
        return None
    mean, covered = achieved
    rest = "; the rest is served by the cache or has no known work" if covered < _NEARLY_ALL else ""
    return TextBlock(
        "Operators reach {reached} of the peak that limits them (of computing or of memory), over {covered} of the device "
        f"time{rest}.",
        {"reached": share(mean), "covered": share(covered)},
    )


def reached(facts: Facts) -> tuple[float, float] | None:
    """Mean share of the roof that limits each operator, by time, and the share of the device time that this is about.

    None where no operator has one. Operators whose data came from the cache have no roof of their own.
    """
    known = [(roof.time, achieved) for roof in facts.roofline if (achieved := _achieved(roof)) is not None]
    total = sum(roof.time for roof in facts.roofline)
    time = sum(length for length, _ in known)
    return (sum(length * achieved for length, achieved in known) / time, time / total) if time else None


def _achieved(roof: Roof) -> float | None:
    if roof.impossible or not roof.bound:
        return None
    both = [value for value in (roof.of_compute, roof.of_memory) if not math.isnan(value)]
    value = {"compute": roof.of_compute, "memory": roof.of_memory}.get(roof.bound, max(both, default=math.nan))
    return None if math.isnan(value) else value
