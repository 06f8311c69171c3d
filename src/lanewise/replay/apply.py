"""Makes a `Change` to a graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lanewise.replay.change import Change
from lanewise.replay.cold_code import warm
from lanewise.replay.graph import StepGraph
from lanewise.trace.intervals import Union, covered, intersect, merge, subtract, union
from lanewise.trace.schema import Kind

__all__ = ["apply", "called"]

# An API call that neither waits nor copies takes the host about this long.
_CALL_NS = 6_000.0

# At most so much of the time before an operator is spent on calling it.
_CALLING_NS = 20_000

# Nodes of a replayed graph follow each other this closely: 0.29 us in the median, 0.38 at the 90th percentile, on an H200.
_NODE_PAUSE_NS = 350.0

_DEVICE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


def apply(graph: StepGraph, change: Change) -> StepGraph:
    """The graph after a change. Make several at once (`a + b`), not one after another: what two of them take away is
    then counted once."""
    trace, host = graph.trace, graph.on_host
    gone_spans = _spans(graph, change.gone[~np.isin(trace.kind[change.gone], _DEVICE)])
    aside = _spans(graph, change.aside)
    idle = _Idle(graph, change, _merged(gone_spans, aside))

    gap, duration, dependency = graph.gap.copy(), graph.duration.copy(), graph.dependency.copy()
    second, lane, ready = graph.second.copy(), graph.lane, graph.ready
    silent = host & (graph.event >= 0) & idle.takes_away()
    left = idle.left()
    unwaited = host & _is_one_of(graph.event, change.unwaited)
    own = np.where(silent, 0.0, np.where(unwaited, np.minimum(graph.own, _CALL_NS), graph.own))
    gap[host] = (np.maximum(gap - graph.own, 0.0) * left)[host]
    gap = warm(graph, gap, own)
    gap[host] = ((gap + own) * change.host_share)[host]
    quiet = silent | unwaited
    dependency[quiet & host] = -1

    launches = host & (graph.event >= 0) & _begins_in(graph, gone_spans)
    parent = np.maximum(graph.dependency, 0)
    gone = ~host & ((launches[parent] & (graph.dependency >= 0)) | _is_one_of(graph.event, change.gone))
    duration[gone], gap[gone], dependency[gone], second[gone] = 0.0, 0.0, -1, -1
    if len(change.nodes):
        hit = ~host & _is_one_of(graph.event, change.nodes)
        gap[hit] = np.minimum(gap[hit], _NODE_PAUSE_NS)
    if len(change.shorter):
        order = np.argsort(change.shorter, kind="stable")
        ids = change.shorter[order]
        lowest = np.minimum.reduceat(change.shorter_ns[order], np.flatnonzero(np.diff(ids, prepend=-1)))
        ids = np.unique(ids)
        row = np.minimum(np.searchsorted(ids, graph.event), len(ids) - 1)
        hit = ~host & (ids[row] == graph.event)
        duration[hit] = np.minimum(duration[hit], lowest[row[hit]])
    if len(change.scaled):
        factor = np.ones(len(trace))
        np.multiply.at(factor, change.scaled, change.scaled_by)
        duration = np.where(~host & (graph.event >= 0), duration * factor[np.maximum(graph.event, 0)], duration)
    if len(change.apart):
        hit = ~host & _is_one_of(graph.event, change.apart)
        lane = np.where(hit, graph.lane + len(ready) - graph.host_lines, graph.lane)
        ready = np.concatenate((ready, ready[graph.host_lines :]))
    changed = replace(graph, gap=gap, duration=duration, dependency=dependency, second=second, lane=lane, ready=ready)
    return _with_more(changed, change, _moved(graph, aside) + change.beside_ns)


class _Idle:
    """When each host line has nothing, or less, to do after a change."""

    def __init__(self, graph: StepGraph, change: Change, away: dict[int, Union]) -> None:
        self._graph = graph
        whole = change.keep <= 0
        self._away = _merged(away, {0: union(change.cut_start, change.cut_end)} if len(change.cut_start) else {})
        self._nothing = _merged(self._away, _spans(graph, change.cheaper[whole]))
        # Shares are rounded, so that as many sets of time are enough.
        keep = np.round(np.maximum(change.keep, 0), 3)
        self._less = {
            float(share): _spans(graph, change.cheaper[~whole & (keep == share)]) for share in np.unique(keep[~whole])
        }

    def left(self) -> np.ndarray:
        """What share of each host node's work is left, shape (nodes,)."""
        graph = self._graph
        left = np.ones(len(graph))
        seen = dict(self._nothing)
        for line, spans in self._nothing.items():
            _take(graph, left, line, spans, 0.0)
        for share, lines in sorted(self._less.items()):
            for line, spans in lines.items():
                before = seen.get(line, Union.empty())
                _take(graph, left, line, subtract(spans, before), share)
                seen[line] = merge(before, spans)
        return np.maximum(left, 0.0)

    def takes_away(self) -> np.ndarray:
        """Whether each node's call is not made any more: its wait goes with it. What merely costs less still waits."""
        return _begins_in(self._graph, self._away)


def _take(graph: StepGraph, left: np.ndarray, line: int, spans: Union, keep: float) -> None:
    """Take from what is left of a line's nodes their work in these spans, but for a share of it. Of time in which rows were
    recorded, what recording took is gone already."""
    nodes = np.flatnonzero(graph.lane == line)
    begin, end, rows_left = graph.begin[nodes], graph.end[nodes], graph.rows_left[nodes]
    unrecorded = graph.unrecorded.get(line, Union.empty())

    def work(taken: np.ndarray, bare: np.ndarray) -> np.ndarray:
        return bare + (taken - bare) * rows_left

    whole = work(np.maximum(end - begin, 1), covered(unrecorded, begin, end))
    gone = work(covered(spans, begin, end), covered(intersect(spans, unrecorded), begin, end))
    left[nodes] -= (1.0 - keep) * gone / np.maximum(whole, 1.0)


def _is_one_of(events: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.isin(events, wanted) if len(wanted) else np.zeros(len(events), dtype=bool)


def _spans(graph: StepGraph, rows: np.ndarray) -> dict[int, Union]:
    """Time of host rows, as a set for each host line."""
    if len(rows) == 0:
        return {}
    trace = graph.trace
    line = graph.line_of_lane[trace.lane[rows]]
    start = np.where(trace.kind[rows] == Kind.OPERATOR, called(graph, rows), trace.start[rows])
    return {int(one): union(start[line == one], trace.end[rows[line == one]]) for one in np.unique(line) if one >= 0}


def called(graph: StepGraph, rows: np.ndarray) -> np.ndarray:
    """When Python began to call operators and API calls, as an operator's row begins when its arguments have been read:
    since the row before it, or the beginning of the one around it, but no longer ago than `_CALLING_NS`."""
    trace = graph.trace
    start = trace.start[rows]
    begin = start - _CALLING_NS
    line = graph.line_of_lane[trace.lane[rows]]
    for one in np.unique(line[line >= 0]).tolist():
        mine = line == one
        starts, ends = graph.edges_of(one)
        for times, at in (
            (starts, np.searchsorted(starts, start[mine], side="left") - 1),
            (ends, np.searchsorted(ends, start[mine], side="right") - 1),
        ):
            begin[mine] = np.maximum(begin[mine], np.where(at >= 0, times[np.maximum(at, 0)], begin[mine]))
    return begin


def _merged(one: dict[int, Union], other: dict[int, Union]) -> dict[int, Union]:
    """Sets of time for each host line, both together."""
    nothing = Union.empty()
    return {line: merge(one.get(line, nothing), other.get(line, nothing)) for line in one.keys() | other.keys()}


def _begins_in(graph: StepGraph, lines: dict[int, Union]) -> np.ndarray:
    """Whether each node's call begins in these sets of time, one for each line."""
    trace, events = graph.trace, graph.event
    result = np.zeros(len(events), dtype=bool)
    for line, spans in lines.items():
        mine = np.flatnonzero((events >= 0) & (graph.lane == line))
        if len(spans.start) == 0 or len(mine) == 0:
            continue
        start = trace.start[events[mine]]
        row = np.searchsorted(spans.start, start, side="right") - 1
        result[mine] = (row >= 0) & (start < spans.end[np.maximum(row, 0)])
    return result


def _moved(graph: StepGraph, aside: dict[int, Union]) -> float:
    """Host work per step that another thread does, ns."""
    if not aside:
        return 0.0
    left = np.ones(len(graph))
    for line, spans in aside.items():
        _take(graph, left, line, spans, 0.0)
    work = np.where(graph.on_host, np.maximum(graph.gap - graph.own, 0.0) * (1 - left), 0.0)
    return float(work.sum()) / max(1, graph.steps)


def _with_more(graph: StepGraph, change: Change, aside_ns: float) -> StepGraph:
    """The graph with the work that a change adds, and what other threads do beside it."""
    if not (change.host_ns or change.device_ns or aside_ns):
        return graph
    marks = np.flatnonzero(graph.on_host & (graph.event < 0))[: graph.steps]
    gap, duration = graph.gap.copy(), graph.duration.copy()
    gap[marks] += change.host_ns
    if change.device_ns:
        work = np.flatnonzero(~graph.on_host & (graph.duration > 0))
        rows = work[np.minimum(np.searchsorted(work, marks), len(work) - 1)] if len(work) else work
        np.add.at(duration, rows, change.device_ns)
    graph = replace(graph, gap=gap, duration=duration)
    return _beside(graph, aside_ns) if aside_ns else graph


def _beside(graph: StepGraph, work_ns: float) -> StepGraph:
    """The graph with one more host thread that has this much to do in each step."""
    node = len(graph)

    def longer(column: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate((column, np.array([value]).astype(column.dtype)))

    return replace(
        graph,
        lane=longer(graph.lane, len(graph.ready)),
        ready=longer(graph.ready, 0.0),
        event=longer(graph.event, -1),
        gap=longer(graph.gap, work_ns * graph.steps),
        duration=longer(graph.duration, 0.0),
        dependency=longer(graph.dependency, -1),
        lag=longer(graph.lag, 0.0),
        second=longer(graph.second, -1),
        second_lag=longer(graph.second_lag, 0.0),
        begin=longer(graph.begin, 0),
        end=longer(graph.end, 0),
        own=longer(graph.own, 0.0),
        profiler=longer(graph.profiler, 0.0),
        step=longer(graph.step, 0),
        rows=np.concatenate((graph.rows, np.zeros((1, graph.rows.shape[1]), np.int64))),
        rows_left=longer(graph.rows_left, 1.0),
        past=longer(graph.past, graph.past.min() if node else 0.0),
    )
