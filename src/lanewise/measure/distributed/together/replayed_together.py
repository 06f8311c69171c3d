"""Ranks replayed together: each waits in a collective or a transfer until the others of it have come.

Where ranks do the same, they come at about the same time, and one of them says what the step takes. Stages of a pipeline
wait for each other by design: what a stage does less, the job gains only where no other stage keeps it waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.measure.distributed.by_itself import ByItself
from lanewise.measure.distributed.together.matched_communications import Seen
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate
from lanewise.replay.undistort import slower

__all__ = ["RanksTogether"]

_STEPS = 12
"""The run is repeated until it holds this many steps, so that how it began does not count."""

_Meeting = tuple[int, int]
"""Round, and number of the meeting in it."""

_Walk = Generator[tuple[_Meeting, float], float, float]


@dataclass(frozen=True, eq=False)
class RanksTogether:
    """Ranks of one job over the same steps.

    Attributes:
        graphs: of each rank, communication taking what moving the data takes.
        meetings: by rank and node, the number of the collective or transfer that it is a part of, -1 for other nodes.
    """

    graphs: list[StepGraph]
    meetings: list[np.ndarray]

    @staticmethod
    def of(ranks: Sequence[tuple[int, ByItself]], met: Sequence[Sequence[Seen]]) -> RanksTogether:
        """Ranks by their row in the job, and what they and others did together."""
        node_at: dict[int, dict[int, int]] = {}
        for row, one in ranks:
            starts = one.graph.trace.start[one.graph.event[one.communication]].tolist()
            node_at[row] = dict(zip(starts, one.communication.tolist(), strict=True))
        meetings = {row: np.full(len(one.graph), -1, dtype=np.int64) for row, one in ranks}
        for number, seen in enumerate(met):
            mine = [
                (row, node_at[row][one.arrival]) for row, one in seen if row in node_at and one.arrival in node_at[row]
            ]
            if len(mine) > 1:
                for row, node in mine:
                    meetings[row][node] = number
        return RanksTogether([one.graph for _, one in ranks], [meetings[row] for row, _ in ranks])

    def step(self, first: StepGraph, factor: float = 1.0) -> float:
        """The step of all, ns.

        Args:
            first: of the first rank, in place of its own. factor: how many times as long the hosts of the others take.
        """
        graphs = [first, *(slower(one, factor) for one in self.graphs[1:])]
        rounds = max(2, -(-_STEPS // max(1, first.steps)))
        return max(_met(graphs, self.meetings, rounds), default=simulate(first).step_ns)


def _met(graphs: Sequence[StepGraph], meetings: Sequence[np.ndarray], rounds: int) -> list[float]:
    """The step of each, ns; none where they wait for each other in a circle, as no recording does that is whole."""
    expected = Counter(number for one in meetings for number in one[one >= 0].tolist())
    walks = [_walk(graph, mine, rounds) for graph, mine in zip(graphs, meetings, strict=True)]
    steps = [0.0] * len(graphs)
    there: defaultdict[_Meeting, list[tuple[int, float]]] = defaultdict(list)
    ready: list[tuple[int, float | None]] = [(row, None) for row in range(len(walks))]
    while ready:
        row, end = ready.pop()
        try:
            meeting, arrived = next(walks[row]) if end is None else walks[row].send(end)
        except StopIteration as over:
            steps[row] = over.value
            continue
        there[meeting].append((row, arrived))
        if len(there[meeting]) == expected[meeting[1]]:
            came = there.pop(meeting)
            ready += [(other, max(time for _, time in came)) for other, _ in came]
    return [] if there else steps


def _walk(graph: StepGraph, meetings: np.ndarray, rounds: int) -> _Walk:
    """Replays one rank as `simulate` does; asks for each meeting when all have come to it. The step, ns."""
    columns = (graph.lane, graph.gap, graph.duration, graph.dependency, graph.lag, graph.second, graph.second_lag)
    nodes = list(zip(*(one.tolist() for one in (*columns, meetings)), strict=True))
    # How far each host was ahead of its device when the recording began is nothing that the ranks share.
    lanes = [0.0] * len(graph.ready)
    end = [0.0] * len(graph.past)
    finish, before = 0.0, 0.0
    for number in range(rounds):
        before, past, end = finish, end, []
        for lane, gap, duration, dependency, lag, second, second_lag, meeting in nodes:
            time = lanes[lane] + gap
            if dependency != -1:
                time = max(time, (end[dependency] if dependency >= 0 else past[-2 - dependency]) + lag)
                if second >= 0:
                    time = max(time, end[second] + second_lag)
            if meeting >= 0:
                time = yield (number, meeting), time
            time += duration
            lanes[lane] = time
            end.append(time)
        finish = max(lanes)
    return (finish - before) / max(1, graph.steps)
