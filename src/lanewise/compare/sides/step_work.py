"""The device work of a run's typical step, in the order in which it was launched.

Steps that launch the same things in the same order are samples of one sequence, position by position. The typical step
is the sequence that most steady steps share. A run without device work is compared by its operators instead, with the
host time that each of them spent itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from lanewise.compare.matching.labels import host_group, stable_name
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.facts import Facts

__all__ = ["Op", "Work", "measure_work"]

_KINDS = {Kind.KERNEL: "kernel", Kind.MEMCPY: "copy", Kind.MEMSET: "set", Kind.OPERATOR: "operator"}
_GRID = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")

# From this many positions on, steps are too long to keep every one of them as a sample.
_MAX_CELLS = 4_000_000


class Op(msgspec.Struct, frozen=True):
    """One kind of device op (or, without a device, operator) of a step.

    Attributes:
        name: as recorded; untrusted.
        kind: `kernel`, `copy`, `set` or `operator`.
        launch: grid and block as text, "" where not recorded.
        operators: names of the operators around its launch, innermost first; empty for nodes of a replayed graph.
        bytes: payload of a copy or set, -1 otherwise.
        shapes: sizes of the tensors of its innermost operator, each once: `32 256 512`; "" where not recorded. Layouts
            and output arguments, which differ between eager and compiled programs, make no difference.
        dtype: type of its first tensor, "" where not recorded.
        elements: of its largest tensor, -1 where not recorded.
        graph: whether a graph launch replayed it.
    """

    name: str
    kind: str
    launch: str = ""
    operators: tuple[str, ...] = ()
    bytes: int = -1
    shapes: str = ""
    dtype: str = ""
    elements: int = -1
    graph: bool = False


class Work(NamedTuple):
    """Work of the typical step.

    Attributes:
        ops: the distinct ops.
        at: row of `ops` of each position in launch order, shape (positions,).
        duration: ns of each position in each step of that sequence, shape (samples, positions).
        steps: steady steps looked at; `len(duration)` of them are samples.
        device: whether the ops ran on a device.
    """

    ops: list[Op]
    at: np.ndarray
    duration: np.ndarray
    steps: int
    device: bool


def measure_work(facts: Facts) -> Work:
    """The typical step of a trace; no positions if it has no steps with work in them."""
    trace = facts.trace
    device = facts.device_records == "some"
    events, order = _device_events(facts) if device else _operator_events(facts)
    steady = np.flatnonzero(facts.steps.steady)
    step = trace.steps.of_event[events]
    keep = np.isin(step, steady)
    events, order, step = events[keep], order[keep], step[keep]
    by_step = np.lexsort((trace.start[events], order, step))
    events, step = events[by_step], step[by_step]
    token = _tokens(facts, events, device)
    bounds = np.searchsorted(step, steady, side="left"), np.searchsorted(step, steady, side="right")
    slices = [slice(int(a), int(b)) for a, b in zip(*bounds, strict=True)]
    signatures = [token[s].tobytes() for s in slices]
    chosen = _typical(signatures, [s.stop - s.start for s in slices])
    if chosen < 0:
        return Work([], np.empty(0, np.int64), np.empty((0, 0), np.int64), len(steady), device)
    same = [s for s, signature in zip(slices, signatures, strict=True) if signature == signatures[chosen]]
    same = same[: max(2, _MAX_CELLS // max(1, slices[chosen].stop - slices[chosen].start))]
    value = trace.duration if device else facts.host.self_time
    duration = np.stack([value[events[s]] for s in same])
    positions = events[slices[chosen]]
    ops, at = _distinct(facts, positions, token[slices[chosen]], device)
    return Work(ops, at, duration, len(steady), device)


def _typical(signatures: list[bytes], lengths: list[int]) -> int:
    """Index of the step whose sequence most steps share; among equals the one of median length; -1 without any work."""
    if not any(lengths):
        return -1
    shared = Counter(signatures)
    most = max(count for signature, count in shared.items() if signature)
    candidates = [i for i, signature in enumerate(signatures) if signature and shared[signature] == most]
    candidates.sort(key=lambda i: lengths[i])
    return candidates[(len(candidates) - 1) // 2]


def _device_events(facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Work of the busiest device, and what orders it: the start of the launch, of the work itself without one."""
    trace = facts.trace
    work, launch = trace.device_work, trace.links.launch
    here = trace["lanes"]["process"][trace.lane[work]] == facts.classes.device
    order = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], trace.start[work])
    return work[here], order[here]


def _operator_events(facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Operators, outer ones before what they call; some builds mark what a compiler adds as annotations."""
    trace = facts.trace
    compiler = np.array([host_group(name) == "compiler" for name in trace.names], dtype=bool)
    events = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    events = events[(trace.kind[events] == Kind.OPERATOR) | compiler[trace.name[events]]]
    events = events[~np.isin(events, trace.steps.event)]
    outer_first = events[np.lexsort((facts.host.depth[events], trace.start[events]))]
    return outer_first, np.arange(len(outer_first))


def _tokens(facts: Facts, events: np.ndarray, device: bool) -> np.ndarray:
    """A number per event: equal for equal name, launch configuration and size; int64."""
    trace = facts.trace
    token = trace.name[events].astype(np.int64)
    columns: list[np.ndarray] = []
    if device:
        columns += [_column(facts, "kernel_args", name, events) for name in (*_GRID, "shared_memory")]
        columns.append(_column(facts, "copy_args", "bytes", events))
    else:
        columns.append(_column(facts, "operator_args", "dims_text", events))
    for column in columns:
        pair = np.unique(column, return_inverse=True)[1]
        token = np.unique(token * (len(events) + 1) + pair, return_inverse=True)[1].astype(np.int64)
    return token


def _column(facts: Facts, table: str, name: str, events: np.ndarray) -> np.ndarray:
    row = facts.trace.lookup(table, events)
    values = facts.trace[table][name]
    return (
        np.where(row >= 0, values[np.maximum(row, 0)].astype(np.int64), -1) if len(values) else np.full(len(events), -1)
    )


def _distinct(facts: Facts, events: np.ndarray, token: np.ndarray, device: bool) -> tuple[list[Op], np.ndarray]:
    """The distinct ops of a step, and the op of each position."""
    trace = facts.trace
    chains = _chains(facts, events, device)
    rows = np.searchsorted(trace.device_work, events)
    operator = trace.links.operator[rows] if device else events
    shapes = _column(facts, "operator_args", "dims_text", np.maximum(operator, 0))
    shapes = np.where(operator >= 0, shapes, -1)
    graph = trace.links.graph_nodes[rows] if device else np.zeros(len(events), dtype=bool)
    grids = [_column(facts, "kernel_args", name, events) for name in _GRID]
    size = _column(facts, "copy_args", "bytes", events)
    index: dict[tuple[int, tuple[str, ...], int, bool], int] = {}
    ops: list[Op] = []
    at = np.empty(len(events), dtype=np.int64)
    for i, event in enumerate(events.tolist()):
        key = (int(token[i]), chains[i], int(shapes[i]), bool(graph[i]))
        found = index.get(key)
        if found is None:
            found = index[key] = len(ops)
            grid = [int(column[i]) for column in grids]
            signature = facts.signatures.of(int(operator[i]))
            tensors = signature.tensors if signature else ()
            ops.append(
                Op(
                    name=trace.name_of(event) if device else stable_name(trace.name_of(event)),
                    kind=_KINDS.get(int(trace.kind[event]), "operator"),
                    launch=f"({grid[0]}, {grid[1]}, {grid[2]}) x ({grid[3]}, {grid[4]}, {grid[5]})"
                    if grid[0] >= 0
                    else "",
                    operators=chains[i],
                    bytes=int(size[i]),
                    shapes=" ".join(map(str, sorted({size for tensor in tensors for size in tensor.shape}))),
                    dtype=tensors[0].dtype if tensors else "",
                    elements=max((tensor.numel for tensor in tensors), default=-1),
                    graph=bool(graph[i]),
                )
            )
        at[i] = found
    return ops, at


def _chains(facts: Facts, events: np.ndarray, device: bool) -> list[tuple[str, ...]]:
    """Names of the operators around each op, innermost first."""
    trace, parent = facts.trace, facts.host.parent
    if device:
        start = trace.links.operator[np.searchsorted(trace.device_work, events)]
    else:
        start = events
    known: dict[int, tuple[str, ...]] = {-1: ()}

    def chain(event: int) -> tuple[str, ...]:
        path: list[int] = []
        while event not in known:
            path.append(event)
            event = int(parent[event])
        for at in reversed(path):
            above = known[int(parent[at])]
            own = trace.kind[at] == Kind.OPERATOR
            known[at] = (stable_name(trace.name_of(at)), *above[:7]) if own else above
        return known[path[0]] if path else known[event]

    return [chain(event) for event in start.tolist()]
