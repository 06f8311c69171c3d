"""One step of a replay as rows of a timetable: what each host line and stream does when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import Replayed

__all__ = ["Timetable", "timetable"]


class Timetable(NamedTuple):
    """What happens in one step once a replay repeats itself; n rows, in no order.

    Attributes:
        node: node of the graph, shape (n,).
        lane: its lane.
        start, duration: ns from the beginning of the step's device work (of its host work where there is none).
        waiting: whether the row is a host's wait and not its work.
    """

    node: np.ndarray
    lane: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    waiting: np.ndarray


def timetable(graph: StepGraph, replayed: Replayed) -> Timetable:
    """The timetable of a step in the middle of the last round.

    A round follows the other at equal distance: what the host does ahead for a later one is seen at the end of this one.
    """
    nodes = np.flatnonzero(graph.lane < len(graph.ready))
    host, end = graph.on_host, replayed.end
    order = np.argsort(graph.lane, kind="stable")
    free = np.full(len(graph), replayed.round_start)
    same = graph.lane[order][1:] == graph.lane[order][:-1]
    free[order[1:]] = np.where(same, end[order[:-1]], replayed.round_start)
    worked = np.where(host, np.minimum(free + graph.gap, end), end)
    begin = np.where(host, np.minimum(free, worked), end - graph.duration)
    waits = nodes[host[nodes] & (end[nodes] - worked[nodes] > 0)]
    rows = np.concatenate((nodes, waits))
    waiting = np.concatenate((np.zeros(len(nodes), bool), np.ones(len(waits), bool)))
    start = np.concatenate((begin[nodes], worked[waits]))
    finish = np.concatenate((worked[nodes], end[waits]))
    chosen = finish > start
    rows, waiting, start, finish = rows[chosen], waiting[chosen], start[chosen], finish[chosen]
    length = replayed.step_ns
    first = _beginning(graph, rows, start)
    if graph.steps > 1:
        # Each row at its first time that reaches into the step.
        period = length * graph.steps
        ahead = np.ceil((first - finish) / period + 1e-9) * period
        start, finish = start + ahead, finish + ahead
    inside = (start < first + length) & (finish > first)
    start = np.maximum(start, first) - first
    finish = np.minimum(finish, first + length) - first
    return Timetable(rows[inside], graph.lane[rows[inside]], start[inside], (finish - start)[inside], waiting[inside])


def _beginning(graph: StepGraph, rows: np.ndarray, start: np.ndarray) -> float:
    """When the step in the middle begins: its device work, or its host work where there is none."""
    middle = graph.step[rows] == graph.steps // 2
    work = middle & ~graph.on_host[rows]
    mine = start[work] if work.any() else start[middle]
    return float(mine.min()) if len(mine) else 0.0
