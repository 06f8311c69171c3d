"""Integrity of a trace: what is missing, impossible, ambiguous or lost. Pure counts; shown before any number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.file.profiler_log import says_dropped
from lanewise.trace.intervals import Union, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["Health", "captures", "examine", "in_capture", "silent_launches"]

# More overlap on one stream than this is an impossible duration (trap R4); up to 15 us is rounding or programmatic
# dependent launch (trap R5).
_IMPOSSIBLE_OVERLAP_NS = 20_000


@dataclass(frozen=True)
class Health:
    """Integrity counts of one trace; see trace-format section 12.

    Attributes:
        device_ops: kernels, copies and sets.
        linked, head_orphans, other_orphans: device ops with a launch; without, at the head of the file (launched before
            the recording); without, elsewhere (lost).
        launches: calls that should have device work. launches_without_work: those that have none.
        graph_launches, graph_nodes, graph_time_share: replayed graphs, their device ops and share of device time.
        clock_errors: device ops that start before their launch started.
        unattributed_time_share: share of device time without an operator.
        crossing: events that outlive their parent by more than a microsecond.
        left_open: frames and ranges of the host that were never closed; they end where what came after begins.
        clock_offset: how much later the device's clock was than the host's, ns; corrected.
        cut: device ops that ran on beyond the whole of the next one of their stream, cut there; cut_share: of device time
            as recorded, what was cut off.
        impossible_overlaps: pairs of kernels that overlap on one stream by over 20 us and were not cut.
        zero_durations: kernels without duration. duplicates: exact duplicate rows.
        host_end: end of the last host row, ns.
        shapes, stacks, memory, sync_events, modules: whether the trace holds them.
        overhead: profiler overhead rows by name: count and total ns.
        unknown_kernels: kernels named "unknown" by the profiler.
        log_lines: the profiler's own lines of level WARNING and above, bounded.
    """

    device_ops: int = 0
    linked: int = 0
    head_orphans: int = 0
    other_orphans: int = 0
    launches: int = 0
    launches_without_work: int = 0
    graph_launches: int = 0
    graph_nodes: int = 0
    graph_time_share: float = 0.0
    clock_errors: int = 0
    left_open: int = 0
    clock_offset: int = 0
    cut: int = 0
    cut_share: float = 0.0
    unattributed_time_share: float = 0.0
    crossing: int = 0
    impossible_overlaps: int = 0
    zero_durations: int = 0
    duplicates: int = 0
    host_end: int = 0
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    sync_events: bool = False
    modules: bool = False
    overhead: dict[str, tuple[int, int]] = field(default_factory=dict)
    unknown_kernels: int = 0
    log_lines: tuple[str, ...] = ()

    @property
    def unlinked(self) -> int:
        """Launches without work for each of which there is work without a launch: there, and not matched."""
        return min(self.launches_without_work, self.other_orphans)

    @property
    def lost(self) -> int:
        """Launches without work, or work without a launch, for which there is nothing on the other side."""
        return max(self.launches_without_work, self.other_orphans) - self.unlinked

    @property
    def unmatched_share(self) -> float:
        """Launches that cannot be matched with their work, lost or not, as a share of all (MEA108)."""
        return (self.lost + self.unlinked) / self.launches if self.launches else 0.0

    @property
    def lost_work_share(self) -> float:
        """Launches whose work is not in the trace, as a share of all."""
        return max(0, self.launches_without_work - self.other_orphans) / self.launches if self.launches else 0.0


def examine(trace: Trace) -> Health:
    """Count everything that may be wrong with a trace."""
    links, device = trace.links, trace.device_work
    linked = links.launch >= 0
    time = trace.duration[device]
    total = max(1, int(time.sum()))
    launches, silent = _launches(trace)
    nodes = links.graph_nodes
    kernel_rows = trace.kind[device] == Kind.KERNEL
    args = trace["operator_args"]
    host = trace.of(Kind.ANNOTATION, Kind.OPERATOR, Kind.PYTHON, Kind.RUNTIME, Kind.DRIVER)
    early = linked & (trace.start[device] < trace.start[np.maximum(links.launch, 0)])
    python = trace.of(Kind.PYTHON)
    return Health(
        device_ops=len(device),
        linked=int(linked.sum()),
        head_orphans=int((links.orphan == 1).sum()),
        other_orphans=int((links.orphan == 2).sum()),
        launches=launches,
        launches_without_work=len(silent),
        graph_launches=len(links.calls("graph_launch")),
        graph_nodes=int(nodes.sum()),
        graph_time_share=float(time[nodes].sum()) / total,
        clock_errors=int(early.sum()),
        left_open=trace.corrections.closed,
        clock_offset=trace.corrections.clock_ns,
        cut=len(trace.corrections.cut),
        cut_share=trace.corrections.cut_ns / max(1, trace.corrections.recorded_ns),
        unattributed_time_share=float(time[links.operator < 0].sum()) / total if len(device) else 0.0,
        crossing=trace.nesting.crossing,
        impossible_overlaps=_impossible_overlaps(trace),
        zero_durations=int(np.count_nonzero(time[kernel_rows] == 0)),
        duplicates=_duplicates(trace),
        host_end=int(trace.end[host].max()) if len(host) else 0,
        shapes=bool((args["dims_text"] > 0).any()),
        stacks=len(python) > 0 or bool((args["call_stack_text"] > 0).any()),
        memory=len(trace["memory"]["time"]) > 0,
        sync_events=len(trace["sync_args"]["event"]) > 0,
        modules=bool((trace["python_args"]["module_id"] >= 0).any()) or bool((args["module_text"] > 0).any()),
        overhead=_overhead(trace),
        unknown_kernels=int(np.isin(trace.name[device], trace.name_ids("unknown")).sum()),
        log_lines=_log_lines(trace),
    )


def silent_launches(trace: Trace) -> np.ndarray:
    """Launches of kernels and graphs whose work is not in the trace."""
    return _launches(trace)[1]


def captures(trace: Trace) -> Union:
    """Time in which a graph is captured, ns: what is launched then is only written down, and runs once it is replayed."""
    build = trace.links.calls("graph_build")
    if len(build) == 0:
        return Union.empty()
    begin = np.sort(trace.start[build[trace.name_mask("BeginCapture")[trace.name[build]]]])
    end = np.sort(trace.end[build[trace.name_mask("EndCapture")[trace.name[build]]]])
    both = min(len(begin), len(end))
    return union(begin[:both], end[:both])


def in_capture(trace: Trace, calls: np.ndarray) -> np.ndarray:
    """Whether each of some launches is made while a graph is captured, bool, shape (calls,)."""
    spans = captures(trace)
    if len(spans.start) == 0:
        return np.zeros(len(calls), dtype=bool)
    at = np.searchsorted(spans.start, trace.start[calls], side="right") - 1
    return (at >= 0) & (trace.start[calls] <= spans.end[np.maximum(at, 0)])


def _launches(trace: Trace) -> tuple[int, np.ndarray]:
    """How many calls enqueue work, and those of them that have none; calls under graph capture enqueue nothing."""
    links = trace.links
    calls = links.launches
    live = calls[~in_capture(trace, calls)]
    # A call in flight when the recording stopped has no record of its work; nor have sets and copies of zero bytes,
    # which no profiler reports: count kernel launches only.
    kernel_launch = links.names_of("launch", "graph_launch")[trace.name[live]]
    # A host function runs on the host: it leaves no record on the device.
    kernel_launch &= ~trace.name_mask("HostFunc")[trace.name[live]]
    return len(live), live[kernel_launch & (links.device_count_of_launch[live] == 0)]


def _impossible_overlaps(trace: Trace) -> int:
    kernels = trace.of(Kind.KERNEL)
    if len(kernels) < 2:
        return 0
    order = kernels[np.lexsort((trace.start[kernels], trace.lane[kernels]))]
    same = trace.lane[order][1:] == trace.lane[order][:-1]
    overlap = np.where(same, trace.end[order][:-1] - trace.start[order][1:], 0)
    return int(np.count_nonzero(overlap > _IMPOSSIBLE_OVERLAP_NS))


def _duplicates(trace: Trace) -> int:
    """Rows equal in lane, name, start, duration and correlation to another: merged files repeat rows (trap R7)."""
    work = trace.device_work
    if len(work) < 2:
        return 0
    keys = (
        trace["events"]["correlation"][work],
        trace.duration[work],
        trace.name[work],
        trace.start[work],
        trace.lane[work],
    )
    order = np.lexsort(keys)
    same = np.ones(len(work) - 1, dtype=bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    return int(same.sum())


def _overhead(trace: Trace) -> dict[str, tuple[int, int]]:
    rows = trace.of(Kind.OVERHEAD)
    result: dict[str, tuple[int, int]] = {}
    for name in np.unique(trace.name[rows]).tolist():
        chosen = rows[trace.name[rows] == name]
        result[trace.names[int(name)]] = (len(chosen), int(trace.duration[chosen].sum()))
    return result


def _log_lines(trace: Trace) -> tuple[str, ...]:
    lines: list[str] = []
    for level in ("WARNING", "ERROR", "INFO"):
        entries = trace.metadata.get(level)
        if not isinstance(entries, list):
            continue
        for entry in entries[:50]:
            text = str(entry)[:300]
            if level != "INFO" or says_dropped(text):
                lines.append(f"{level}: {text}")
    return tuple(lines[:20])
