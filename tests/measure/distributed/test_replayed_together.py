"""Ranks that wait for each other in the middle of a step."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.core import Core
from lanewise.measure.distributed.by_itself import by_itself
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.distributed.together.matched_communications import Matched, match
from lanewise.measure.distributed.together.replayed_together import RanksTogether
from lanewise.replay.simulate import simulate
from tests.support.builder import TraceBuilder

US = 1000.0


def stage(number: int, before: float, between: float, waits: tuple[float, float]) -> Core:
    """Steps of two collectives that each move data for 50 us, computing before the first and between the two."""
    b = TraceBuilder(metadata={"distributedInfo": {"rank": number, "world_size": 2}})
    for _ in range(6):
        with b.step():
            for compute, wait in zip((before, between), waits, strict=True):
                if compute:
                    b.launch("gemm", duration=compute)
                b.collective(elements=1_000_000, duration=50.0 + wait, rank=number, stream="7")
            b.synchronize("cudaDeviceSynchronize")
    return Core(b.build())


@pytest.fixture(scope="module")
def job() -> tuple[list[Core], Matched]:
    """Rank 0 computes for 2 ms and then waits for rank 1, which first waits for those and then computes for 3 ms."""
    cores = [stage(0, 2000.0, 0.0, (0.0, 3000.0)), stage(1, 0.0, 3000.0, (2000.0, 0.0))]
    return cores, match([summarise(core) for core in cores])


def test_each_waits_until_the_other_has_come(job: tuple[list[Core], Matched]) -> None:
    cores, met = job
    ranks = [(row, by_itself(core, met.moving(row))) for row, core in enumerate(cores)]
    alone = [simulate(one.graph).step_ns / US for _, one in ranks]
    assert alone == [pytest.approx(2100, abs=80), pytest.approx(3100, abs=80)]
    together = RanksTogether.of(ranks, met.collectives)
    assert together.step(ranks[0][1].graph) / US == pytest.approx(5100, abs=120)


def test_what_exchanges_nothing_waits_for_nothing(job: tuple[list[Core], Matched]) -> None:
    cores, met = job
    ranks = [(row, by_itself(core, met.moving(row))) for row, core in enumerate(cores)]
    apart = RanksTogether.of(ranks, [])
    assert apart.step(ranks[0][1].graph) == pytest.approx(simulate(ranks[1][1].graph).step_ns, rel=0.01)


def test_ranks_that_wait_in_a_circle_are_replayed_alone(job: tuple[list[Core], Matched]) -> None:
    """Meetings that cross, as no whole recording has them: nothing hangs."""
    cores, met = job
    ranks = [(row, by_itself(core, met.moving(row))) for row, core in enumerate(cores)]
    together = RanksTogether.of(ranks, met.collectives)
    crossed = together.meetings[1].copy()
    nodes = np.flatnonzero(crossed >= 0)
    crossed[nodes[:2]] = crossed[nodes[1::-1]]
    circle = RanksTogether(together.graphs, [together.meetings[0], crossed])
    assert circle.step(ranks[0][1].graph) == simulate(ranks[0][1].graph).step_ns
