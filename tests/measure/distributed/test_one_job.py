"""Which traces are of one job where several jobs have written into one folder."""

from __future__ import annotations

import msgspec

from lanewise.measure.distributed.gathering.one_job import newest_job
from lanewise.measure.distributed.rank_summary import RankSummary

SECOND = 1_000_000_000


def trace(rank: int, began_s: float, digest: str = "") -> tuple[str, RankSummary]:
    name = f"rank{rank}-at{began_s}"
    summary = RankSummary(
        rank=rank, world=4, file=name, digest=digest or name, device="", steps=[], timed_ns=0.0, recorded_ns=0.0,
        alone_ns=0.0, contexts=[], communications=[], began_ns=round(began_s * SECOND),
    )  # fmt: skip
    return name, summary


def names(job: list[tuple[str, RankSummary]]) -> list[str]:
    return [name for name, _ in job]


def test_of_two_jobs_the_newer_is_taken_whatever_the_names_say() -> None:
    before = [trace(rank, 100 + rank / 10) for rank in range(4)]
    after = [trace(rank, 130 + rank / 10) for rank in (3, 1, 0, 2)]
    job = newest_job([*before, *after])
    assert names(job.ranks) == names(sorted(after, key=lambda one: one[1].rank))
    assert job.earlier == sorted(names(before))
    assert job.twice == []


def test_a_rank_that_the_newer_job_lacks_is_not_taken_from_the_older() -> None:
    """In the older job that rank began last: only the time between the jobs tells."""
    before = [trace(0, 100.0), trace(1, 100.2), trace(2, 100.1)]
    after = [trace(0, 160.0), trace(2, 160.3)]
    job = newest_job([*before, *after])
    assert names(job.ranks) == ["rank0-at160.0", "rank2-at160.3"]
    assert len(job.earlier) == 3


def test_one_job_is_taken_whole_however_far_apart_its_ranks_began() -> None:
    job = newest_job([trace(0, 100.0), trace(1, 400.0), trace(2, 101.0)])
    assert len(job.ranks) == 3
    assert job.earlier == []


def test_a_copy_is_of_the_same_rank_and_no_other_job() -> None:
    job = newest_job([trace(0, 100.0), trace(1, 100.1), ("copy", trace(0, 100.0)[1])])
    assert job.twice == [("copy", "rank0-at100.0")]
    assert (len(job.ranks), job.earlier) == (2, [])


def test_without_times_the_first_of_each_rank_is_taken() -> None:
    job = newest_job([trace(0, 0), trace(1, 0), ("again", msgspec.structs.replace(trace(0, 0)[1], digest="other"))])
    assert names(job.ranks) == ["rank0-at0", "rank1-at0"]
    assert job.twice == [("again", "rank0-at0")]


def test_ranks_that_do_not_say_their_number_are_all_kept() -> None:
    assert len(newest_job([trace(-1, 100.0, "a"), trace(-1, 100.5, "b")]).ranks) == 2
