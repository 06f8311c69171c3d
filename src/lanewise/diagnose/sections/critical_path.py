"""The critical path of a step: how much of it is host work, launches, kernels and waits, and its longest stretches."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.measure.regime.critical_path import KINDS, CriticalPath, Segment
from lanewise.report.evidence_columns import KIND, SHARE, START, TIME, WHAT, Headings, headed
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import share, text, time
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["critical_path_section"]

# Naming one searches the whole trace.
_MOST_SEGMENTS = 100

_MEANING = {
    "host": "work of the host: Python, operators, other calls",
    "launch": "launch calls",
    "latency": "the delay between a launch and its start on an idle device",
    "kernel": "kernels",
    "copy": "copies",
    "communication": "communication",
    "dependency": "launched work held back by something that the trace does not show",
    "wait": "blocking waits that no recorded work explains",
}
_KINDS: Headings = [KIND, TIME, SHARE, TableColumn("meaning", "text", "what it is")]
_SEGMENTS: Headings = [
    WHAT,
    KIND,
    headed(START, "from the step's start"),
    TIME,
    SHARE,
    TableColumn("events", "count", "device ops"),
    TableColumn("lane", "text", "where"),
]


def critical_path_section(facts: Facts, step: int | None = None) -> Section:
    """The critical path of a step (row number), the last steady one by default."""
    if facts.device_records != "some":
        return Section([TextBlock("The trace holds no device work: the step's path is the host's.")], {})
    path = facts.critical_path(step)
    total = max(1, path.end - path.start)
    kinds: list[dict[str, Any]] = [
        {"kind": kind, "time": path.time[kind], "share": path.shares[kind], "meaning": _MEANING[kind]}
        for kind in KINDS
        if path.time[kind]
    ]
    kinds.sort(key=lambda row: -row["time"])
    longest = sorted(path.segments, key=lambda part: part.start - part.end)
    segments: list[dict[str, Any]] = [
        {
            "what": _what(facts, part),
            "kind": part.kind,
            "start": part.start - path.start,
            "time": part.end - part.start,
            "share": (part.end - part.start) / total,
            "events": part.events,
            "lane": str(facts.trace["lanes"]["label"][part.lane]) if part.lane >= 0 else "",
        }
        for part in longest[:_MOST_SEGMENTS]
    ]
    return Section(
        [_statement(facts, path, kinds)],
        {
            "critical-path": Source("What the step waits for, end to end", columns_of(kinds, _KINDS), _KINDS),
            "critical-path-segments": Source("Its longest stretches", columns_of(segments, _SEGMENTS), _SEGMENTS),
        },
    )


def _statement(facts: Facts, path: CriticalPath, kinds: list[dict[str, Any]]) -> TextBlock:
    steps = facts.trace.steps
    where = f"Step #{int(steps.number[path.step])}" if steps.recorded else "The recording"
    ending = " The walk gave up before the beginning; the rest is not told apart." if path.truncated else ""
    if not kinds:
        return TextBlock(f"{where} has no length.{ending}")
    return TextBlock(
        f"{where} takes {{length}} end to end; most of its critical path ({{share}}) is {{kind}}.{ending}",
        {"length": time(path.end - path.start), "share": share(kinds[0]["share"]), "kind": text(kinds[0]["meaning"])},
    )


def _what(facts: Facts, part: Segment) -> str:
    """What a stretch of the path is: the longest kernel of a run, the longest operator of a stretch on the host."""
    trace = facts.trace
    if part.kind == "host":
        return _host_work(facts, part)
    if part.events > 1:
        mine = trace.device_work[trace.lane[trace.device_work] == part.lane]
        mine = mine[(trace.start[mine] < part.end) & (trace.end[mine] > part.start)]
        if len(mine):
            longest = int(mine[np.argmax(trace.duration[mine])])
            return f"{short_name(trace.name_of(longest))} and {len(mine) - 1:,} more"
    if part.event < 0:
        return ""
    name = trace.name_of(part.event)
    return short_name(name) if trace.kind[part.event] == Kind.KERNEL else name


def _host_work(facts: Facts, part: Segment) -> str:
    """The outermost operators and calls of a stretch of host time: the longest by name, and how many there are."""
    trace = facts.trace
    kinds = (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
    here = (trace.lane == part.lane) & (trace.start < part.end) & (trace.end > part.start)
    rows = np.flatnonzero(here & np.isin(trace.kind, np.array(kinds, dtype=np.uint8)))
    if len(rows) == 0:
        return "nothing recorded"
    outer = nearest(facts.host.parent, trace.kind == Kind.OPERATOR, rows)
    rows = rows[outer < 0]
    if len(rows) == 0:
        return "nothing recorded"
    inside = np.minimum(trace.end[rows], part.end) - np.maximum(trace.start[rows], part.start)
    name = trace.name_of(int(rows[np.argmax(inside)]))
    return f"{name} and {len(rows) - 1:,} more" if len(rows) > 1 else name
