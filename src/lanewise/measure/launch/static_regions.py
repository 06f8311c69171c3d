"""The longest stretch of a step that every step runs alike and in which the host never waits or allocates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.trace.intervals import covered

__all__ = ["StaticRegion", "static_region"]


@dataclass(frozen=True, eq=False)
class StaticRegion:
    """One region, present in every compared step.

    Attributes:
        calls: launching calls of the region in steady steps.
        launches: launches per step.
        blockers: what ends it on either side, by kind, per step: waits, allocations, graph launches, collectives.
        same: whether all compared steps launch the same kernels with the same grids (and shapes, where recorded).
        compared: number of steps compared.
        shapes: whether shapes were compared, too.
        host_ns: time inside it in which the device waits for the host; ns per steady step.
        device_ns: device time of its work; ns per steady step.
    """

    calls: np.ndarray
    launches: int
    blockers: dict[str, float]
    same: bool
    compared: int
    shapes: bool
    host_ns: float
    device_ns: float


@remembered
def static_region(facts: Core) -> StaticRegion | None:
    """Find it; None without launches in steady steps."""
    trace, links, steps = facts.trace, facts.trace.links, facts.trace.steps
    steady = np.flatnonzero(facts.steps.steady)
    rows = np.flatnonzero((links.launch >= 0) & ~links.graph_nodes)
    calls, first = np.unique(links.launch[rows], return_index=True)
    rows = rows[first]
    order = np.argsort(trace.start[calls], kind="stable")
    calls, rows = calls[order], rows[order]
    step = steps.of_event[calls]
    if not np.isin(step, steady).any():
        return None
    stops = _blockers(facts)
    stop_time = np.sort(np.concatenate([trace.start[events] for events in stops.values()]))
    segment = np.searchsorted(stop_time, trace.start[calls], side="right")
    clean = segment == np.searchsorted(stop_time, trace.start[calls], side="left")

    by_step = np.argsort(step, kind="stable")
    present, begin = np.unique(step[by_step], return_index=True)
    of_step = dict(zip(present.tolist(), np.split(by_step, begin[1:]), strict=True))
    compared = [row for row in of_step if row >= 0 and facts.steps.steady[row]]
    # One steady step compares with the first recorded one: that may be slow, but runs the same program.
    if len(compared) < 2 and steps.recorded:
        compared = [row for row in of_step if row >= 0]
    regions = [_longest(of_step[row], segment, clean) for row in compared]
    what = _what(facts, rows)
    same = len(compared) > 1 and all(np.array_equal(what[region], what[regions[0]]) for region in regions)
    in_steady = [region for s, region in zip(compared, regions, strict=True) if facts.steps.steady[s]]
    low = np.array([trace.start[calls[region[0]]] for region in in_steady])
    high = np.array([trace.end[trace.device_work[rows[region]]].max() for region in in_steady])
    chosen = np.concatenate(in_steady)
    work = trace.device_work[rows[chosen]]
    count = len(in_steady)
    return StaticRegion(
        calls=calls[chosen],
        launches=round(len(chosen) / count),
        blockers={kind: float(np.isin(steps.of_event[events], steady).sum()) / count for kind, events in stops.items()},
        same=same,
        compared=len(compared),
        shapes=facts.health.shapes,
        host_ns=float(covered(facts.classes.sets["host"], low, high).sum()) / count,
        device_ns=float(trace.duration[work].sum()) / count,
    )


def _blockers(facts: Core) -> dict[str, np.ndarray]:
    """Calls that no graph can hold, or should not: waiting, allocating, collectives, and graphs that exist already.

    Copies from ordinary host memory are among the waits: a graph would replay their address, not their data.
    """
    links = facts.trace.links
    collective = links.launch[facts.is_family("communication")]
    return {
        "waits": np.flatnonzero(facts.host.waiting),
        "allocations": links.calls("allocate", "free"),
        "graph launches": links.calls("graph_launch"),
        "collectives": np.unique(collective[collective >= 0]),
    }


def _longest(of_step: np.ndarray, segment: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """Positions of the longest run of launches of a step without a blocker between or among them."""
    positions = of_step[clean[of_step]]
    if len(positions) == 0:
        return of_step[:1]
    begin = np.flatnonzero(np.diff(segment[positions], prepend=-1))
    length = np.diff(begin, append=len(positions))
    longest = int(np.argmax(length))
    return positions[begin[longest] : begin[longest] + length[longest]]


def _what(facts: Core, rows: np.ndarray) -> np.ndarray:
    """What each launch starts: kernel, grid and, where recorded, shapes; shape (launches, 5)."""
    trace = facts.trace
    event = trace.device_work[rows]
    result = np.full((len(rows), 5), -1, dtype=np.int64)
    result[:, 0] = trace.name[event]
    args = trace["kernel_args"]
    if len(args["event"]):
        at = trace.lookup("kernel_args", event)
        for column, name in enumerate(("grid_x", "grid_y", "grid_z")):
            result[:, 1 + column] = np.where(at >= 0, args[name][np.maximum(at, 0)], -1)
    shapes = trace["operator_args"]
    operator = trace.links.operator[rows]
    if len(shapes["event"]):
        at = np.where(operator >= 0, trace.lookup("operator_args", np.maximum(operator, 0)), -1)
        result[:, 4] = np.where(at >= 0, shapes["dims_text"][np.maximum(at, 0)].astype(np.int64), -1)
    return result
