"""Replays a graph: the time of every node from what it waits for, in one pass, as every lane is first in, first out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.replay.graph import StepGraph

__all__ = ["Replayed", "simulate"]

# The run is repeated until it holds this many steps, so that how far the host ran ahead at first does not count.
_STEPS = 12


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
