"""Device memory over the recording: the peak and who holds it, what each step asks for and keeps."""

from __future__ import annotations

from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.measure.facts import Facts
from lanewise.measure.memory.allocator import MemoryUse
from lanewise.report.evidence_columns import (
    ANNOTATION,
    BLOCKS,
    BYTES,
    MODULE,
    OPERATOR,
    SHARE,
    STEP,
    TIME,
    Headings,
    headed,
)
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import byte_size, share, time

__all__ = ["memory_section", "peak_statement"]

_OWNERS: Headings = [
    OPERATOR,
    MODULE,
    ANNOTATION,
    TableColumn("step", "text", "step"),
    BYTES,
    BLOCKS,
    headed(SHARE, "of the peak"),
]
_STEPS: Headings = [
    STEP,
    TableColumn("allocated", "bytes", "asked for"),
    TableColumn("allocations", "count", "requests"),
    TableColumn("freed", "bytes", "given back"),
    TableColumn("grown", "bytes", "kept"),
]
_OVER_TIME: Headings = [
    TIME,
    TableColumn("allocated", "bytes", "allocated"),
    TableColumn("reserved", "bytes", "reserved"),
]


def memory_section(facts: Facts) -> Section:
    """The peak, its owners, and churn per step."""
    use = facts.memory
    if use is None:
        hint = "profile_memory=True in the profiler, or lanewise run --memory"
        return Section([TextBlock(f"The trace holds no events of a device's allocator: record them ({hint}).")], {})
    rows = [
        {
            "operator": owner.operator or "outside operators",
            "module": owner.module,
            "annotation": owner.annotation,
            "step": f"#{owner.step}" if owner.step >= 0 else "",
            "bytes": owner.bytes,
            "blocks": owner.blocks,
            "share": owner.bytes / use.peak if use.peak else 0.0,
        }
        for owner in use.owners
    ]
    tables = {"memory": Source("Who holds the memory at the peak", columns_of(rows, _OWNERS), _OWNERS)}
    if facts.trace.steps.recorded:
        tables["memory-steps"] = Source("What each step asks the allocator for", use.churn, _STEPS)
    tables["memory-over-time"] = Source("Memory over time", use.over_time, _OVER_TIME)
    return Section([peak_statement(use), *_use(use)], tables)


def peak_statement(use: MemoryUse) -> TextBlock:
    """The peak in a sentence."""
    if not use.totals:
        return TextBlock(
            "At most {peak} of device memory is allocated on top of what was at the start, at {at}; this build of torch "
            "records no totals.",
            {"peak": byte_size(use.peak), "at": time(use.peak_time)},
        )
    of = " of {capacity} ({share})" if use.capacity else ""
    return TextBlock(
        f"At most {{peak}} of device memory is allocated, {{reserved}} reserved{of}, at {{at}}.",
        {
            "peak": byte_size(use.peak),
            "reserved": byte_size(use.peak_reserved),
            "capacity": byte_size(use.capacity),
            "share": share(use.peak_reserved / use.capacity if use.capacity else 0.0),
            "at": time(use.peak_time),
        },
    )


def _use(use: MemoryUse) -> list[TextBlock]:
    reused = TextBlock("Within a step {reused} are asked for and given back.", {"reused": byte_size(use.reused)})
    if not use.totals:
        return [reused]
    known = TextBlock(
        "{known} of the peak was allocated while recording, the rest before. {free} of the reserved memory is free when "
        "most is reserved.",
        {"known": share(use.known_at_peak / use.peak if use.peak else 0.0), "free": share(use.fragmentation)},
    )
    return [known, reused]
