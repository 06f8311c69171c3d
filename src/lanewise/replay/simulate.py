"""Replays a graph: the time of every node from what it waits for, in one pass, as every lane is first in, first out.

Where hosts seldom wait, long rows of nodes wait for nothing that comes later: each row is computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.replay.graph import StepGraph

__all__ = ["Replayed", "simulate"]

# The run is repeated until it holds this many steps, so that how far the host ran ahead at first does not count.
_STEPS = 12

# Groups of more nodes than this, on average, are replayed faster than their nodes one by one.
_WORTH = 14


@dataclass(frozen=True, eq=False)
class Replayed:
    """A replay.

    Attributes:
        step_ns: time per step once the run repeats itself; of the whole run where it is not made of steps.
        end: when each node ended in the last round, ns from the beginning of the first, shape (nodes,).
        round_start: when the last round began: the end of the one before, ns.
    """

    step_ns: float
    end: np.ndarray
    round_start: float


def simulate(graph: StepGraph, *, rounds: int | None = None) -> Replayed:
    """Replay a graph.

    Args:
        graph: what to replay.
        rounds: how often the run is repeated; enough to reach a steady state by default, once for a single region.
    """
    if rounds is None:
        rounds = 1 if graph.steps <= 1 else 1 + max(1, -(-_STEPS // graph.steps) - 1)
    groups = _groups(graph)
    return _in_groups(graph, groups, rounds) if len(groups) * _WORTH < len(graph) else _one_by_one(graph, rounds)


def _one_by_one(graph: StepGraph, rounds: int) -> Replayed:
    """Each node after all that it waits for."""
    nodes = list(
        zip(
            graph.lane.tolist(),
            graph.gap.tolist(),
            graph.duration.tolist(),
            graph.dependency.tolist(),
            graph.lag.tolist(),
            graph.second.tolist(),
            graph.second_lag.tolist(),
            strict=True,
        )
    )
    lanes: list[float] = graph.ready.tolist()
    end: list[float] = graph.past.tolist()
    finish, before = graph.head, 0.0
    for _ in range(rounds):
        before, past, end = finish, end, []
        add = end.append
        for lane, gap, duration, dependency, lag, second, second_lag in nodes:
            time = lanes[lane] + gap
            if dependency != -1:
                other = (end[dependency] if dependency >= 0 else past[-2 - dependency]) + lag
                if other > time:
                    time = other
                if second >= 0:
                    other = end[second] + second_lag
                    if other > time:
                        time = other
            time += duration
            lanes[lane] = time
            add(time)
        finish = max(lanes)
    return Replayed((finish - before) / max(1, graph.steps), np.array(end), before)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows of nodes of one lane, where all that they wait for is in the rows before.

    Attributes:
        order: the nodes, group by group. first: where each group begins in it, and where the last one ends.
    """

    order: np.ndarray
    first: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1


def _groups(graph: StepGraph) -> _Groups:
    """A block begins with each wait of a host, and each operation that waits for another one: in the rest of it
    hosts wait for nothing, and operations for their launches. So its hosts come first, then its streams."""
    host = graph.on_host
    waits = np.where(host, graph.dependency != -1, (graph.dependency >= 0) & ~host[np.maximum(graph.dependency, 0)])
    block = np.cumsum(waits | (graph.second >= 0))
    order = np.lexsort((graph.lane, block))
    new = (np.diff(block[order]) != 0) | (np.diff(graph.lane[order]) != 0)
    return _Groups(order, np.concatenate(([0], np.flatnonzero(new) + 1, [len(order)])))


def _in_groups(graph: StepGraph, groups: _Groups, rounds: int) -> Replayed:
    """A node ends at `max(end before + gap, ready) + duration`: less the sum of gaps and durations up to it, that is the
    largest of what its lane came with and of what it and those before it waited for."""
    count, order, first = len(graph), groups.order, groups.first
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    dependency, second, duration = graph.dependency[order], graph.second[order], graph.duration[order]
    total = np.cumsum(graph.gap[order] + duration)
    total -= np.repeat(np.concatenate(([0.0], total[first[1:-1] - 1])), np.diff(first))
    # Ends of this round in the order of the groups, and behind them those of the round before.
    waited = np.where(dependency >= 0, place[np.maximum(dependency, 0)], count + place[np.maximum(-2 - dependency, 0)])
    lag = np.where(dependency == -1, -np.inf, graph.lag[order]) + duration - total
    held = (second >= 0) & (dependency != -1)
    other, other_lag = place[np.maximum(second, 0)].tolist(), (graph.second_lag[order] + duration - total).tolist()
    each = list(
        zip(
            first[:-1].tolist(),
            first[1:].tolist(),
            graph.lane[order[first[:-1]]].tolist(),
            np.logical_or.reduceat(dependency != -1, first[:-1]).tolist(),
            held[first[:-1]].tolist(),
            strict=True,
        )
    )
    lanes: list[float] = graph.ready.tolist()
    values = np.concatenate((np.zeros(count), graph.past[order]))
    finish, before = graph.head, 0.0
    for number in range(rounds):
        if number:
            values[count:] = values[:count]
        before = finish
        for start, end, lane, waits, is_held in each:
            if waits:
                done = values[waited[start:end]]
                done += lag[start:end]
                came = lanes[lane]
                if is_held:
                    came = max(came, float(values[other[start]]) + other_lag[start])
                if done[0] < came:
                    done[0] = came
                np.maximum.accumulate(done, out=done)
                done += total[start:end]
            else:
                done = total[start:end] + lanes[lane]
            values[start:end] = done
            lanes[lane] = float(done[-1])
        finish = max(lanes)
    return Replayed((finish - before) / max(1, graph.steps), values[place], before)
