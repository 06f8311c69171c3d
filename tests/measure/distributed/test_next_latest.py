"""The job without its late rank goes at the pace of the next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from lanewise.measure.core import Core
from lanewise.measure.distributed.late_ranks import Job, compare_ranks
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.distributed.together.next_latest import gain_of_job
from lanewise.trace.metadata import KEY
from tests.support.builder import TraceBuilder
from tests.support.made_ranks import made_rank

MS = 1e6


def job_of(*ranks: tuple[Sequence[float], Sequence[float]]) -> Job:
    """Ranks by what their hosts take in each timed step, and how long the device is then behind, ms."""
    made = [
        msgspec.structs.replace(
            made_rank(number), own_timed_ns=[one * MS for one in own], behind_ns=[one * MS for one in behind]
        )
        for number, (own, behind) in enumerate(ranks)
    ]
    return compare_ranks(made)


@pytest.mark.parametrize(
    ("behind", "own", "after"),
    [([1000.0, 3000.0, 0.0], [19.0, 18.0], [3.0, 0.0]), ([1000.0, 3000.0], [], []), ([1000.0, "x", 0.0], [], [])],
    ids=["whole", "one too few", "no number"],
)
def test_a_step_begins_with_the_wait_at_the_end_of_the_one_before(
    behind: list[object], own: list[float], after: list[float]
) -> None:
    times = {"median_us": 20e3, "samples": 3, "steps": 3, "method": "host", "times_us": [20e3, 20e3, 21e3]}
    b = TraceBuilder(metadata={KEY: {"unprofiled": {**times, "behind_us": behind}}})
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.wait(10.0)
    summary = summarise(Core(b.build()))
    assert summary.own_timed_ns == [one * MS for one in own]
    assert summary.behind_ns == [one * MS for one in after]


def gain(job: Job, ms: float, *, device_ms: float = 0.0) -> float:
    return gain_of_job(job, len(job.ranks) - 1, {len(job.ranks) - 1: ms * MS}, device_ns=device_ms * MS) / MS


@pytest.mark.parametrize(
    ("early", "gains"),
    [((6.0, 6.0), 5.0), ((3.0, 3.0), 3.0), ((8.0, 2.0), 3.5), ((0.0, 0.0), 0.0)],
    ids=["early enough", "early", "early in one step", "as late"],
)
def test_what_the_late_rank_gains_ends_where_the_next_is_the_last(early: Sequence[float], gains: float) -> None:
    """The late one gains 5 ms of 20; in each step the other is early by so many ms."""
    other = [20.0 - one for one in early], [1.0 + one for one in early]
    assert gain(job_of(other, ([20.0, 20.0], [1.0, 1.0])), 5.0) == pytest.approx(gains)


def test_the_latest_of_the_others_counts() -> None:
    ranks = [([20.0 - early] * 2, [1.0 + early] * 2) for early in (6.0, 2.0, 4.0, 0.0)]
    assert gain(job_of(*ranks), 5.0) == pytest.approx(2.0)


def test_a_late_device_goes_with_what_it_does_after_its_host() -> None:
    """Both hosts take 20 ms; the late device needs 10 ms after that, which are what it does more."""
    job = job_of(([20.0, 20.0], [10.0, 10.0]), ([20.0, 20.0], [10.0, 10.0]))
    assert gain(job, 10.0, device_ms=10.0) == pytest.approx(10.0)
    assert gain(job, 10.0) == pytest.approx(0.0)


def test_a_device_is_done_earlier_by_all_that_it_does_more() -> None:
    """The late device works 9 ms more while its host takes 20, and gains 8 as it waits for its host then: nothing of what
    it did after its host is left for the other, whose host takes 21."""
    job = job_of(([21.0, 21.0], [7.0, 7.0]), ([20.0, 20.0], [8.0, 8.0]))
    assert gain(job, 8.0, device_ms=9.0) == pytest.approx(7.0)


def test_another_late_rank_gains_its_own() -> None:
    job = job_of(([10.0], [11.0]), ([19.0], [2.0]), ([20.0], [1.0]))
    assert gain_of_job(job, 2, {2: 8 * MS}, device_ns=0.0) / MS == pytest.approx(1.0)
    assert gain_of_job(job, 2, {1: 7 * MS, 2: 8 * MS}, device_ns=0.0) / MS == pytest.approx(8.0)


@pytest.mark.parametrize("own", [[], [19.0, 19.0, 19.0]], ids=["not timed", "timed over other steps"])
def test_where_the_others_were_not_timed_the_job_gains_what_the_rank_does(own: Sequence[float]) -> None:
    assert gain(job_of((own, own), ([20.0, 20.0], [1.0, 1.0])), 5.0) == pytest.approx(5.0)
