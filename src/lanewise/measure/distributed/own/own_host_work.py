"""What a rank's host does by itself in a step: its operators, calls and Python, without waits and what recording cost.

Waits are no work: calls that wait for the device, and the host sitting between operators until a collective on the CPU
ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.distributed.own.innermost_rows import Stretches, stretches_of
from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.group_keys import combined
from lanewise.measure.regime.python_functions import function_label
from lanewise.replay.undistort import COSTS, LEFT_OF_FRAMES
from lanewise.trace.intervals import covered, merge, union
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core
    from lanewise.measure.distributed.own.own_context import WorkRows
    from lanewise.trace.intervals import Union

__all__ = ["Pieces", "host_collectives", "host_work"]

_CALLS = (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
_HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc):(?!\s*$)")
_LOADER = re.compile(r"DataLoader")
_STEP = re.compile(r"^ProfilerStep#\d+$")
_NUMBER = re.compile(r" \d+$")
_COPY = re.compile(r"^(?:aten::(?:copy_|_to_copy|to|clone|contiguous)|(?:cuda|hip)Memcpy)")
_COLLECTS = re.compile(r"^(?:collect$|collect \()")


@dataclass(frozen=True, eq=False)
class Pieces:
    """Own time of one host line.

    Attributes:
        line: which. start: when each stretch begins. context: in which it is. length: its ns as recorded.
        spent: its ns without the profiler.
        outer: name of the outermost operator around a call, -1 for a call in none and for what is no call.
    """

    line: int
    start: np.ndarray
    context: np.ndarray
    length: np.ndarray
    spent: np.ndarray
    outer: np.ndarray


def host_collectives(core: Core) -> np.ndarray:
    """Rows that span a collective or a transfer between ranks on the CPU, from its call to its end."""
    mask = core.trace.name_mask(_HOST_COLLECTIVE.pattern)
    return np.flatnonzero(mask[core.trace.name] & np.isin(core.trace.kind, (Kind.ANNOTATION, Kind.OPERATOR)))


def _run(core: Core) -> tuple[np.ndarray, int]:
    """When each step of the steady run begins, and when the last one ends, ns."""
    graph, steps = core.graph, core.trace.steps
    host = np.flatnonzero(graph.on_host)
    begin = int(graph.begin[host].min()) if len(host) else int(steps.start[0])
    first = max(0, int(np.searchsorted(steps.start, begin, side="right")) - 1)
    last = min(first + graph.steps, len(steps)) - 1
    return steps.start[first : last + 1], int(steps.end[last])


def host_work(core: Core, contexts: dict[Context, int]) -> tuple[list[Pieces], list[WorkRows]]:
    """Where the host's time lies, line by line, and the rows of it; contexts that are new are added."""
    trace, graph = core.trace, core.graph
    begins, until = _run(core)
    low = int(begins[0])
    spans = host_collectives(core)
    counts = np.isin(trace.kind, (*_CALLS, Kind.PYTHON, Kind.ANNOTATION))
    counts &= ~trace.name_mask(_STEP.pattern)[trace.name]
    counts[spans] = False
    mark = trace.steps.event[trace.steps.event >= 0]
    main = int(trace.lane[mark[0]]) if len(mark) else -1
    aside = _aside(core, begins, until)
    found: list[WorkRows] = []
    pieces: list[Pieces] = []
    for line in range(graph.host_lines):
        lanes = np.flatnonzero(graph.line_of_lane == line)
        if len(lanes) == 0:
            continue
        stretches = stretches_of(trace, lanes, main, counts, low, until)
        if line == 0:
            stretches = _without_waits(core, stretches, spans)
        nodes = np.flatnonzero(graph.lane == line)
        stretches = stretches.cut(np.unique(np.concatenate((begins, graph.begin[nodes]))))
        start, length, outer, rows = _rows_of(core, stretches, begins, aside if line == 0 else None, contexts)
        found.append(rows)
        pieces.append(Pieces(line, start, rows[1], length, rows[2], outer))
    return pieces, found


def _aside(core: Core, begins: np.ndarray, until: int) -> Union:
    """Time that is the profiler's: its buffer requests, and its code between two steps."""
    trace, steps = core.trace, core.trace.steps
    requests = core.host.stalls.request
    spans = union(trace.start[requests], trace.end[requests])
    if steps.source == "profiler":
        inside = (steps.start >= begins[0]) & (steps.end <= until)
        spans = merge(spans, union(steps.end[inside][:-1], steps.start[inside][1:]))
    return spans


_WAIT = -2
"""Row of a stretch in which the host waits for other ranks."""

_BEHIND_NS = 200_000
"""A thread that called a collective on the CPU sits down to wait for it within this time."""

_PAUSE_NS = 100_000
"""A pause between operators that is shorter is no wait for a collective on the CPU, though one may run beside it."""


_DENSE, _LEFT_OF_DENSE = 1.4, 0.38
"""Operators whose rows usually cost so many times what they take here, with those in them and the time between them,
and the share of it that is left: recording makes up more of them than of others (in seven jobs on H200s' hosts, loops of
`add_` took 2.1 to 2.8 times as long while they were recorded). The rows of such loops cost 2.5 to 3.2 times what they took,
and 1.5 to 1.8 times for as long as a host was half as fast, in all that it did."""


_MOMENT_NS = 30_000
"""So little time between two calls of one operator is part of the loop that calls it."""


def _without_waits(core: Core, stretches: Stretches, spans: np.ndarray) -> Stretches:
    """Stretches with the waits for collectives on the CPU marked: pauses between operators while one is under way."""
    if len(spans) == 0 or len(stretches.start) == 0:
        return stretches
    trace = core.trace
    under_way = union(trace.start[spans], trace.end[spans])
    cut = stretches.cut(np.concatenate((under_way.start, under_way.end)))
    kind = np.where(cut.row >= 0, trace.kind[np.maximum(cut.row, 0)], Kind.OTHER)
    idle = ~np.isin(kind, _CALLS)
    new = np.concatenate(([True], idle[1:] != idle[:-1]))
    pause = np.cumsum(new) - 1
    begin = cut.start[new]
    long = np.concatenate((begin[1:], cut.end[-1:])) - begin >= _PAUSE_NS
    # Right behind the call all is waiting: the thread that runs the collective may begin late, and the wait return late.
    calls = np.flatnonzero((trace.kind == Kind.OPERATOR) & core.collective_names[trace.name])
    ended = np.sort(trace.end[calls])
    last = np.searchsorted(ended, begin, side="right") - 1
    called = (last >= 0) & (begin - ended[np.maximum(last, 0)] <= _BEHIND_NS) if len(ended) else begin < 0
    waits = idle & long[pause] & (called[pause] | (covered(under_way, cut.start, cut.end) > 0))
    return Stretches(cut.start, cut.end, np.where(waits, _WAIT, cut.row))


def _rows_of(
    core: Core, stretches: Stretches, begins: np.ndarray, aside: Union | None, contexts: dict[Context, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, WorkRows]:
    trace = core.trace
    row = stretches.row
    known = row >= 0
    safe = np.maximum(row, 0)
    kind = np.where(known, trace.kind[safe], Kind.OTHER)
    calls = np.isin(kind, _CALLS)
    working = (row != _WAIT) & ~(known & core.host.waiting[safe])
    # What enqueues a collective may be held up by others.
    working &= ~(calls & core.collective_names[trace.name[safe]])
    length = (stretches.end - stretches.start).astype(np.float64)
    if aside is not None:
        length -= covered(aside, stretches.start, stretches.end)

    annotations = (trace.kind == Kind.ANNOTATION) & ~trace.name_mask(_STEP.pattern)[trace.name]
    annotations &= ~trace.name_mask(_HOST_COLLECTIVE.pattern)[trace.name]
    inside = np.full(len(row), -1, dtype=np.int64)
    inside[known] = nearest(trace.nesting.parent, annotations, row[known], include_self=True)
    frames = (trace.kind == Kind.PYTHON) & trace.user_frame_names[trace.name]
    place = np.full(len(row), -1, dtype=np.int64)
    if frames.any():
        place[known] = nearest(trace.nesting.parent, frames, row[known], include_self=True)
    outer = np.where(calls, core.host.outermost_operator[safe], -1)
    outer = np.where(calls & (outer < 0), safe, outer)
    before, after = _neighbours(np.where(calls, outer, -1))

    def named(event: np.ndarray) -> np.ndarray:
        return np.where(event >= 0, trace.name[np.maximum(event, 0)].astype(np.int64), -1)

    # Of a loop of short calls, what lies between two of them goes with them, whether its function was recorded or not.
    at_calls = np.concatenate(([False], calls, [False]))
    loops = at_calls[:-2] & at_calls[2:] & (named(before) == named(after)) & (length < _MOMENT_NS)
    python = (kind == Kind.PYTHON) & ~loops
    what = np.where(calls, kind, np.where(python, Kind.PYTHON, Kind.OTHER)).astype(np.int64)
    gap = ~calls & ~python
    chosen = np.flatnonzero(working & (length > 0))
    keys = [
        one[chosen]
        for one in (
            what,
            np.where(gap, named(before), named(np.where(known, row, -1))),
            np.where(gap, named(after), -1),
            named(inside),
            named(place),
        )
    ]
    _, some, column = np.unique(combined(*keys), return_index=True, return_inverse=True)
    unique = np.stack([one[some] for one in keys], axis=1)
    texts = [str(name) for name in trace.names]
    number = np.array(
        [contexts.setdefault(_context(texts, *one), len(contexts)) for one in unique.tolist()], dtype=np.int64
    )
    step = np.clip(np.searchsorted(begins, stretches.start[chosen], side="right") - 1, 0, len(begins) - 1)
    # A stretch in which its row begins is that row's one count; one between two calls counts wherever it is.
    first = known[chosen] & (trace.start[safe[chosen]] == stretches.start[chosen])
    count = np.where(first | gap[chosen], 1.0, 0.0)
    price = np.zeros(len(trace))
    price[np.isin(trace.kind, (Kind.OPERATOR,))] = COSTS.operator
    price[np.isin(trace.kind, (Kind.RUNTIME, Kind.DRIVER))] = COSTS.call
    price[trace.kind == Kind.PYTHON] = COSTS.frame
    # Part of what a row costs falls before its beginning and after its end.
    cost = np.where(first, price[safe[chosen]], np.where(gap[chosen], COSTS.operator, 0.0))
    # A call, those in it, and what lies between it and the next one of a loop are as dense as they are together.
    called = np.where(calls, named(outer), np.where(loops, named(before), -1))[chosen]
    _, together = np.unique(combined(step, called, keys[3]), return_inverse=True)
    # The driver's part in a call takes long by itself.
    of_operators = np.where(np.isin(kind[chosen], (Kind.RUNTIME, Kind.DRIVER)), 0.0, cost)
    dense = (called >= 0) & _is_dense(together, length[chosen], of_operators)
    spent = _less(length[chosen], cost, step, number[column], dense, python[chosen], len(begins), len(contexts))
    around = np.where(calls & (outer != safe), named(outer), -1)[chosen]
    return stretches.start[chosen], length[chosen], around, (step, number[column], spent, count)


def _less(
    length: np.ndarray,
    cost: np.ndarray,
    step: np.ndarray,
    column: np.ndarray,
    dense: np.ndarray,
    python: np.ndarray,
    steps: int,
    columns: int,
) -> np.ndarray:
    """Time less what recording cost: so much for each row, and at most a share of what a context takes in a step.

    `dense` are stretches of which recording makes up more.
    """
    place = step * columns + column
    total = np.bincount(place, weights=length, minlength=steps * columns)
    price = np.bincount(place, weights=cost, minlength=steps * columns)
    frames = np.zeros(steps * columns, dtype=bool)
    frames[place[python]] = True
    least = np.bincount(place, weights=length * np.where(dense, _LEFT_OF_DENSE, COSTS.left), minlength=steps * columns)
    left = np.maximum(total - price, np.where(frames, LEFT_OF_FRAMES * total, least))
    share = np.divide(left, total, out=np.ones_like(total), where=total > 0)
    return length * share[place]


def _is_dense(together: np.ndarray, length: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Whether the rows of the stretches with one number cost far more than these take."""
    return (np.bincount(together, weights=cost) > _DENSE * np.bincount(together, weights=length))[together]


def _neighbours(call: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The outermost call before and after each stretch, -1 for none."""
    index = np.arange(len(call))
    calls = np.flatnonzero(call >= 0)
    if len(calls) == 0:
        return call, call
    last = np.maximum.accumulate(np.where(call >= 0, index, -1))
    following = np.minimum.accumulate(np.where(call >= 0, index, len(call))[::-1])[::-1]
    # A run repeats itself: before its first call comes its last one.
    last = np.where(last >= 0, last, calls[-1])
    following = np.where(following < len(call), following, calls[0])
    return call[last], call[following]


def _context(texts: list[str], what: int, name: int, until: int, inside: int, place: int) -> Context:
    def text(row: int) -> str:
        return texts[row] if row >= 0 else ""

    around = _NUMBER.sub("", text(inside))
    where = function_label(text(place)) if place >= 0 else ""
    if _LOADER.search(around):
        return Context("loader", around, place=where)
    if what == Kind.OTHER:
        return Context("python", text(name), text(until), around, where)
    if what == Kind.PYTHON:
        label = function_label(text(name))
        kind = "sleep" if label == "sleep" else "collection" if _COLLECTS.match(label) else "python"
        return Context(kind, label, inside=around, place=where)
    own = text(name)
    kind = "copy" if _COPY.match(own) else "operator" if what == Kind.OPERATOR else "call"
    return Context(kind, own, inside=around, place=where)
