"""Changes to a step in terms of what belongs together: device work, the calls that launch it, the operators around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.replay.apply import called
from lanewise.replay.change import Change, Events, add, cheaper, cut, shorten
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["batch", "fuse", "remove", "replayed", "rescale", "without_stretch"]


def remove(facts: Facts, events: Events) -> Change:
    """These are not executed: host rows with what they launch; device work with the operators that launch nothing else."""
    trace = facts.trace
    events = np.asarray(events, dtype=np.int64)
    on_device = np.isin(trace.kind[events], (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET))
    # The program's own calls, such as `torch.cuda.synchronize()`, are made by Python, which goes with them.
    calls = events[np.isin(trace.kind[events], (Kind.RUNTIME, Kind.DRIVER))]
    calls = calls[facts.host.outermost_operator[calls] < 0]
    gone = Change(gone=np.concatenate((events, _hosts_of(facts, events[on_device]))))
    return gone + cut(called(facts.graph, calls), trace.start[calls]) if len(calls) else gone


def rescale(facts: Facts, events: Events, by: float | np.ndarray) -> Change:
    """Device work takes `by` times as long as recorded."""
    events = np.asarray(events, dtype=np.int64)
    return shorten(events, facts.trace.duration[events] * by)


def _hosts_of(facts: Facts, work: np.ndarray) -> np.ndarray:
    """The launches of device work, and the largest operators around them that launch nothing else."""
    if len(work) == 0:
        return work
    trace, parent = facts.trace, facts.host.parent
    rows = np.searchsorted(trace.device_work, work)
    launch = trace.links.launch[rows]
    launch, number = np.unique(launch[launch >= 0], return_counts=True)
    # A graph's launch stays as long as one of its nodes does.
    at = launch[number == trace.links.device_count_of_launch[launch]]
    inside, found, held = facts.launches_inside, [at], dict.fromkeys(at.tolist(), 1)
    total: dict[int, int] = {}
    while held:
        whole: dict[int, int] = {}
        for child, number in held.items():
            above = int(parent[child])
            if above >= 0 and trace.kind[above] == Kind.OPERATOR:
                total[above] = total.get(above, 0) + number
                if total[above] == inside[above]:
                    whole[above] = total[above]
        held = whole
        found.append(np.fromiter(whole, np.int64, len(whole)))
    return np.concatenate(found)


def fuse(facts: Facts, groups: Sequence[np.ndarray], to_ns: Sequence[float] | np.ndarray) -> Change:
    """The device operations of each group become one, which takes at most so long: the longest of them stays, the others
    go with the operators that launch nothing else."""
    duration = facts.trace.duration
    kept = np.array([int(group[np.argmax(duration[group])]) for group in groups], dtype=np.int64)
    every = np.concatenate([np.empty(0, np.int64), *groups]).astype(np.int64)
    return remove(facts, np.setdiff1d(every, kept)) + shorten(kept, np.asarray(to_ns, dtype=np.float64))


def batch(
    facts: Facts, rows: np.ndarray, calls: np.ndarray, *, launches: float, steps: int, least_ns: float = 1_500.0
) -> Change:
    """Host rows that launch one small kernel after another launch a few for all tensors at once.

    The host's work shrinks with the number of launches; the kernels' own work stays, but not what starting each costs.

    Args:
        facts: the measures.
        rows: host rows that hold the launches. calls: the launches in them. steps: steps that they are of.
        launches: how many are left in a step.
        least_ns: what a kernel takes that does nothing: about 1.5 us on a data-centre card.
    """
    trace = facts.trace
    keep = min(1.0, launches * steps / max(1, len(calls)))
    work = trace.device_work[np.isin(trace.links.launch, calls) & (trace.links.launch >= 0)]
    spared = work[round(len(work) * keep) :]
    beyond = np.maximum(trace.duration[spared] - least_ns, 0).sum() / max(1, steps)
    return cheaper(rows, keep) + Change(gone=spared) + add(device_ns=float(beyond))


def without_stretch(facts: Facts, calls: np.ndarray) -> Change:
    """Launches that are not made, with all that the host does from the first to the last of those in a row."""
    trace, every = facts.trace, facts.launches.call
    order = every[np.lexsort((trace.start[every], trace.lane[every]))]
    mine = np.isin(order, calls)
    first = np.flatnonzero(mine & ~np.concatenate(([False], mine[:-1])))
    last = np.flatnonzero(mine & ~np.concatenate((mine[1:], [False])))
    owner = facts.host.outermost_operator[order]
    outer = np.where(owner >= 0, owner, order)
    # A backward node holds more than what is computed again in it: from the first launch on, if it is not the first.
    begin = np.where(_same_owner(outer, first, -1), trace.start[order[first]], trace.start[outer[first]])
    following = order[np.minimum(last + 1, len(order) - 1)]
    inner = nearest(facts.host.parent, trace.kind == Kind.OPERATOR, following)
    next_begin = trace.start[np.where(inner >= 0, inner, following)]
    end = np.where(_same_owner(outer, last, 1), next_begin, trace.end[outer[last]])
    work = trace.device_work[np.isin(trace.links.launch, calls) & (trace.links.launch >= 0)]
    return remove(facts, work) + cut(begin, end)


def _same_owner(outer: np.ndarray, at: np.ndarray, step: int) -> np.ndarray:
    """Whether the neighbour of each position has the same outermost operator."""
    other = at + step
    inside = (other >= 0) & (other < len(outer))
    return inside & (outer[np.clip(other, 0, max(0, len(outer) - 1))] == outer[at])


def replayed(facts: Facts, calls: np.ndarray) -> Change:
    """Launches as CUDA graphs: in each run of them between two waits the host makes one call, and the device goes from one
    operation to the next without a pause."""
    trace, every = facts.trace, facts.launches.call
    waits = np.flatnonzero(facts.host.waiting)
    points = np.concatenate((every, waits))
    step = trace.steps.of_event[points]
    order = np.lexsort((trace.start[points], trace.lane[points], step))
    points, step = points[order], step[order]
    mine = np.isin(points, calls) & ~facts.host.waiting[points]
    fresh = np.concatenate(([True], (step[1:] != step[:-1]) | (trace.lane[points][1:] != trace.lane[points][:-1])))
    first = np.flatnonzero(mine & (fresh | ~np.concatenate(([False], mine[:-1]))))
    last = np.flatnonzero(mine & (np.concatenate((fresh[1:], [True])) | ~np.concatenate((mine[1:], [False]))))
    owner = facts.host.outermost_operator[points]
    outer = np.where((owner >= 0) & (facts.host.wait_inside[np.maximum(owner, 0)] == 0), owner, points)
    work = trace.device_work[np.isin(trace.links.launch, calls)]
    later = np.setdiff1d(work, work[np.isin(trace.links.launch_of(work), points[first])])
    steps = facts.steady_count
    return (
        cut(trace.start[outer[first]], trace.end[outer[last]])
        + add(host_ns=_GRAPH_LAUNCH_NS * len(first) / steps)
        + Change(nodes=later)
    )


# Launching a captured graph takes the host about this long.
_GRAPH_LAUNCH_NS = 10_000.0
