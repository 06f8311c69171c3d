"""What a rank works on by itself in a step, without the profiler and without waiting: host and device time by context.

A context is where time goes, named so that it is the same on every rank: an operator or call, a Python function, the
stretch between two operators, a loader, a kernel with its launch configuration, a kind of copy. What recording cost is
taken off each context by what was recorded in it (`lanewise.replay.undistort`). Waits are no work: calls that wait for
the device, and the host sitting between operators until a collective on the CPU ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.measure.distributed.innermost_rows import Stretches, stretches_of
from lanewise.measure.group_keys import combined
from lanewise.measure.regime.python_functions import function_label
from lanewise.replay.undistort import COSTS, LEFT_OF_FRAMES
from lanewise.trace.groups import median_of_group
from lanewise.trace.intervals import covered, merge, union
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanewise.measure.core import Core
    from lanewise.trace.intervals import Union

__all__ = [
    "Context",
    "OwnWork",
    "Pieces",
    "device_contexts",
    "holds_host",
    "host_collectives",
    "in_one_piece",
    "own_work",
]

_CALLS = (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
_HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc):(?!\s*$)")
_LOADER = re.compile(r"DataLoader")
_STEP = re.compile(r"^ProfilerStep#\d+$")
_NUMBER = re.compile(r" \d+$")
_COPY = re.compile(r"^(?:aten::(?:copy_|_to_copy|to|clone|contiguous)|(?:cuda|hip)Memcpy)")
_ONE_NS = 200_000
"""A stretch of the host this long without a row in it takes as long while it is recorded: sleep, other code, a loader."""

_COLLECTS = re.compile(r"^(?:collect$|collect \()")


@dataclass(frozen=True, slots=True)
class Context:
    """Where time goes.

    Attributes:
        kind: `python` (a function, or Python that calls no operator), `sleep`, `collection` (of garbage), `loader`,
            `operator`, `call`, `copy` (on either side) or `kernel`.
        name: operator, call, function or kernel; of a stretch between operators, the operator before it.
        until: operator after such a stretch; "" for everything else.
        inside: annotation around it, such as an optimizer's step; launch configuration of a kernel.
        place: function and line of the program, where stacks were recorded.
    """

    kind: str
    name: str
    until: str = ""
    inside: str = ""
    place: str = ""

    @property
    def on_device(self) -> bool:
        """Whether the device spends the time and not the host."""
        return self.kind == "kernel" or (self.kind == "copy" and self.until == "device")


@dataclass(frozen=True, eq=False)
class OwnWork:
    """Own work of a rank in the steady run.

    Attributes:
        contexts: what the columns are. time: ns, shape (steps, contexts). count: rows in it, the same shape.
        shared: whether all of a context's kernels ran beside a collective, whose kernel holds a part of the device, bool,
            shape (contexts,): how long they take by themselves is then not known.
        pieces: where the host's time lies: line, start, context, ns, one entry per stretch.
        called_in: of calls that mostly lie inside an operator, the outermost one.
    """

    contexts: list[Context]
    time: np.ndarray
    count: np.ndarray
    shared: np.ndarray
    pieces: list[Pieces]
    called_in: dict[Context, str]


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


def in_one_piece(context: Context, time_ns: float, count: float) -> bool:
    """Whether it is code that takes as long whatever recording costs, as there are hardly any rows in it."""
    return context.kind in ("python", "sleep", "collection", "loader") and time_ns >= _ONE_NS * max(count, 1.0)


def host_collectives(core: Core) -> np.ndarray:
    """Rows that span a collective or a transfer between ranks on the CPU, from its call to its end."""
    mask = core.trace.name_mask(_HOST_COLLECTIVE.pattern)
    return np.flatnonzero(mask[core.trace.name] & np.isin(core.trace.kind, (Kind.ANNOTATION, Kind.OPERATOR)))


def own_work(core: Core) -> OwnWork:
    """Own work of a rank, by step of the steady run and by context."""
    contexts: dict[Context, int] = {}
    steps = core.graph.steps
    pieces, rows = _host(core, contexts)
    device, shared = _device(core, contexts)
    time = np.zeros((steps, len(contexts)))
    count = np.zeros((steps, len(contexts)))
    for step, column, spent, number in (*rows, *device):
        np.add.at(time, (step, column), spent)
        np.add.at(count, (step, column), number)
    shares = np.isin(np.arange(len(contexts)), shared)
    return OwnWork(list(contexts), time, count, shares, pieces, _called_in(core, list(contexts), pieces))


_Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _called_in(core: Core, contexts: list[Context], pieces: list[Pieces]) -> dict[Context, str]:
    """The outermost operator that most stretches of a context are in; none where most are in none."""
    if not pieces:
        return {}
    context, outer = (np.concatenate([getattr(one, name) for one in pieces]) for name in ("context", "outer"))
    names = core.trace.names
    each, number = np.unique(context * (len(names) + 1) + outer + 1, return_counts=True)
    # Of each context the last one is the most frequent.
    usual = dict(divmod(pair, len(names) + 1) for pair in each[np.argsort(number, kind="stable")].tolist())
    return {contexts[at]: str(names[name - 1]) for at, name in usual.items() if name}


def _run(core: Core) -> tuple[np.ndarray, int]:
    """When each step of the steady run begins, and when the last one ends, ns."""
    graph, steps = core.graph, core.trace.steps
    host = np.flatnonzero(graph.on_host)
    begin = int(graph.begin[host].min()) if len(host) else int(steps.start[0])
    first = max(0, int(np.searchsorted(steps.start, begin, side="right")) - 1)
    last = min(first + graph.steps, len(steps)) - 1
    return steps.start[first : last + 1], int(steps.end[last])


def _host(core: Core, contexts: dict[Context, int]) -> tuple[list[Pieces], list[_Rows]]:
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
    found: list[_Rows] = []
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
) -> tuple[np.ndarray, np.ndarray, np.ndarray, _Rows]:
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


def _device(core: Core, contexts: dict[Context, int]) -> tuple[list[_Rows], np.ndarray]:
    """Device work, and the contexts whose kernels all ran beside a collective."""
    trace, graph = core.trace, core.graph
    nodes = np.flatnonzero(~graph.on_host & (graph.event >= 0))
    work = graph.event[nodes]
    communication = core.is_family("communication")[np.searchsorted(trace.device_work, work)]
    spinning = union(trace.start[work[communication]], trace.end[work[communication]])
    nodes, work = nodes[~communication], work[~communication]
    if len(nodes) == 0:
        return [], np.empty(0, np.int64)
    found, of_work = device_contexts(core, work)
    column = np.array([contexts.setdefault(one, len(contexts)) for one in found], dtype=np.int64)[of_work]
    step = np.clip(graph.step[nodes], 0, graph.steps - 1)
    spent = trace.duration[work].astype(np.float64)
    held = np.array([holds_host(one) for one in found], dtype=bool)[of_work]
    spent[held] += _put_ready(core, work[held])
    beside = covered(spinning, trace.start[work], trace.end[work]) > 0
    alone = np.full(len(contexts), np.nan)
    used, row = np.unique(column[~beside], return_inverse=True)
    if len(used):
        alone[used] = median_of_group(row, spent[~beside])[np.unique(row, return_index=True)[1]]
    # Beside a collective a kernel has a part of the device only: it counts with what it takes by itself.
    typical = alone[column]
    spent = np.where(beside & np.isfinite(typical), np.minimum(spent, typical), spent)
    return [(step, column, spent, np.ones(len(work)))], np.setdiff1d(column[beside], used)


def holds_host(context: Context) -> bool:
    """Whether a device operation is one that the host does: it puts the data where the device can fetch it."""
    return context.on_device and "pageable" in context.name


def _put_ready(core: Core, work: np.ndarray) -> np.ndarray:
    """What the host puts ready before the device begins with what holds it, ns: since the call began and the device had
    done what came before."""
    trace = core.trace
    call = trace.links.launch_of(work)
    order = np.argsort(trace.end[trace.device_work], kind="stable")
    ended = trace.end[trace.device_work][order]
    last = np.searchsorted(ended, trace.start[work], side="right") - 1
    free = np.where(last >= 0, ended[np.maximum(last, 0)], 0)
    ready = trace.start[work] - np.maximum(trace.start[np.maximum(call, 0)], free)
    return np.where(call >= 0, np.maximum(ready - COSTS.call, 0.0), 0.0)


def device_contexts(core: Core, work: np.ndarray) -> tuple[list[Context], np.ndarray]:
    """Contexts of device operations, and which of these each operation has."""
    trace = core.trace
    kernel = trace.kind[work] == Kind.KERNEL
    sizes = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    size, copied = (
        _args(core, work, "kernel_args", sizes),
        _args(core, work, "copy_args", ("direction", "source", "destination")),
    )
    given = [np.where(kernel, one, -1) for one in size.of_work] + [np.where(kernel, -1, one) for one in copied.of_work]
    _, some, of_work = np.unique(combined(trace.name[work], kernel, *given), return_index=True, return_inverse=True)
    found: list[Context] = []
    for at in some.tolist():
        name = trace.name_of(int(work[at]))
        if kernel[at]:
            found.append(Context("kernel", name, inside="x".join(size.texts(at))))
        else:
            found.append(Context("copy", " ".join(copied.texts(at)) or name, until="device"))
    return found, of_work


class _Args(NamedTuple):
    """Arguments of device operations: the values that occur of each, and which of them each operation has, -1 for none."""

    values: list[np.ndarray]
    of_work: list[np.ndarray]

    def texts(self, at: int) -> list[str]:
        """Those of one operation."""
        each = zip(self.values, self.of_work, strict=True)
        return [str(values[which[at]]) for values, which in each if which[at] >= 0]


def _args(core: Core, work: np.ndarray, table: str, columns: Sequence[str]) -> _Args:
    rows = core.trace[table]
    row = np.full(len(core.trace), -1, dtype=np.int64)
    row[rows["event"]] = np.arange(len(rows["event"]))
    at = row[work]
    found = [np.unique(rows[name], return_inverse=True) for name in columns]
    none = np.full(len(work), -1, dtype=np.int64)
    return _Args(
        [values for values, _ in found],
        [np.where(at >= 0, which[np.maximum(at, 0)], -1) if len(which) else none for _, which in found],
    )
