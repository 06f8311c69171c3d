"""torch's memory snapshot: who holds which block, and how much of what is reserved nobody can use."""

from __future__ import annotations

import re

from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.measure.memory.snapshot import Snapshot
from lanewise.report.evidence_columns import BLOCKS, BYTES, COUNT, SHARE, Headings, headed
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import byte_size, count, share
from lanewise.trace.frames import is_library

__all__ = ["snapshot_section"]

_HOLDERS: Headings = [
    TableColumn("place", "text", "allocated at"),
    BYTES,
    BLOCKS,
    headed(SHARE, "of what is in use"),
    TableColumn("stack", "text", "stack"),
]
_EVENTS: Headings = [TableColumn("action", "text", "action"), headed(COUNT, "count")]
_FRAME = re.compile(r"^(.*):\d+ ")
_MOST_FRAMES = 24


def snapshot_section(snapshot: Snapshot) -> Section:
    """The allocator at the moment of the snapshot, and the owners of live blocks."""
    rows = [
        {
            "place": _place(holder.frames),
            "bytes": holder.bytes,
            "blocks": holder.blocks,
            "share": holder.bytes / snapshot.allocated if snapshot.allocated else 0.0,
            "stack": " < ".join(holder.frames[:_MOST_FRAMES]),
        }
        for holder in snapshot.holders
    ]
    events = [{"action": name, "count": number} for name, number in sorted(snapshot.events.items())]
    tables = {"snapshot": Source("Who holds live blocks in the snapshot", columns_of(rows, _HOLDERS), _HOLDERS)}
    if events:
        tables["snapshot-events"] = Source("Recorded events of the allocator", columns_of(events, _EVENTS), _EVENTS)
    statements = [
        TextBlock(
            "{reserved} are reserved in {segments} segments: {allocated} in use, {waiting} given back but still used by a "
            "stream, {free} free.",
            {
                "reserved": byte_size(snapshot.reserved),
                "segments": count(snapshot.segments),
                "allocated": byte_size(snapshot.allocated),
                "waiting": byte_size(snapshot.waiting),
                "free": byte_size(snapshot.free),
            },
        ),
        TextBlock(
            "The largest free block has {largest}: {fragmentation} of the free memory cannot serve a single request. "
            "{split} of it lie in segments with used blocks and cannot go back to the driver.",
            {
                "largest": byte_size(snapshot.largest_free),
                "fragmentation": share(snapshot.fragmentation),
                "split": byte_size(snapshot.split_free),
            },
        ),
    ]
    return Section(statements, tables)


def _place(frames: tuple[str, ...]) -> str:
    """The innermost frame that is the program's own Python; else the innermost one."""
    for frame in frames:
        found = _FRAME.match(frame)
        if found and found[1].endswith(".py") and not is_library(found[1]):
            return frame
    # Full paths cannot be told apart from libraries by their names alone: the innermost Python frame is the nearest.
    return next((frame for frame in frames if ".py:" in frame), frames[0] if frames else "recorded without stacks")
