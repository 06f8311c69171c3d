"""What runs beside what on a device."""

from __future__ import annotations

from lanewise.diagnose.sections.section import Section, Source
from lanewise.measure.facts import Facts
from lanewise.measure.regime.overlap import Overlap
from lanewise.report.evidence_columns import BUSY, Headings, headed
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, share, time

__all__ = ["hidden_statement", "overlap_section"]

_HEADINGS: Headings = [
    TableColumn("label", "text", "stream"),
    TableColumn("ops", "count", "ops"),
    headed(BUSY, "busy"),
    TableColumn("compute", "time", "computes"),
    TableColumn("copies", "time", "copies"),
    TableColumn("communication", "time", "communicates"),
    TableColumn("alone", "time", "busy alone"),
]


def overlap_section(facts: Facts) -> Section:
    """Computation, copies and communication per stream and together, over the whole recording."""
    overlap = facts.overlap
    if overlap.streams.height == 0:
        return Section([TextBlock("The trace holds no device work.")], {})
    parts = ["computes {compute}"]
    parts += ["copies {copies}"] if overlap.copies.total else []
    parts += ["communicates {communication}"] if overlap.communication.total else []
    several = overlap.streams.height > 1
    which = "both of its streams" if overlap.streams.height == 2 else "two or more of its {streams} streams"
    at_once = f"; {which} are busy at once for {{concurrent}}" if several else ", on one stream"
    together = TextBlock(
        f"Over the recording the device {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}{at_once}.",
        {
            "compute": time(overlap.compute.total),
            "copies": time(overlap.copies.total),
            "communication": time(overlap.communication.total),
            "streams": count(overlap.streams.height),
            "concurrent": time(overlap.concurrent),
        },
    )
    hidden = hidden_statement(overlap)
    return Section(
        [together, *([hidden] if hidden else [])], {"overlap": Source("Streams", overlap.streams, _HEADINGS)}
    )


def hidden_statement(overlap: Overlap, *, copies: bool = True, communication: bool = True) -> TextBlock | None:
    """How much of copies and communication computation hides, of those that are asked for; None without either."""
    parts: list[str] = []
    if overlap.copies.total and copies:
        parts.append("{copies} of the copy time")
    if overlap.communication.total and communication:
        parts.append("{communication} of the communication time")
    if not parts:
        return None
    return TextBlock(
        f"Computation hides {' and '.join(parts)}.",
        {"copies": share(overlap.copies_hidden_share), "communication": share(overlap.communication_hidden_share)},
    )
