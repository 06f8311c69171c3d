"""What the ranks of a job do together: bandwidths, exposed time, pipelines, clocks."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.distributed.communications import Communication
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.measure.distributed.together.bus_bandwidth import bus_factor, kind_of
from lanewise.measure.distributed.together.communication_figures import link_of, traffic_of
from lanewise.measure.distributed.together.host_clocks import align_clocks
from lanewise.measure.distributed.together.matched_communications import match
from lanewise.measure.distributed.together.pipeline_bubble import pipelines_of
from lanewise.measure.distributed.together.step_in_time import step_in_time
from tests.support.made_ranks import exchanged, made_rank
from tests.support.real_jobs import GOOD, PIPELINE, job_summaries


@pytest.mark.parametrize(
    ("name", "kind", "factor"),
    [
        # Factors of nccl-tests, doc/PERFORMANCE.md, for eight ranks.
        ("allreduce", "all-reduce", 2 * 7 / 8),
        ("gloo:all_reduce", "all-reduce", 2 * 7 / 8),
        ("AllReduce", "all-reduce", 2 * 7 / 8),
        ("_allgather_base", "all-gather", 7 / 8),
        ("allgather_into_tensor_coalesced", "all-gather", 7 / 8),
        ("_reduce_scatter_base", "reduce-scatter", 7 / 8),
        ("reduce_scatter_tensor_coalesced", "reduce-scatter", 7 / 8),
        ("all_to_allv", "all-to-all", 7 / 8),
        ("broadcast", "broadcast", 1.0),
        ("reduce", "reduce", 1.0),
        ("send", "send and receive", 1.0),
        ("irecv", "send and receive", 1.0),
        ("barrier", "barrier", 0.0),
        ("something else", "something else", 0.0),
    ],
)
def test_kinds_and_their_factors(name: str, kind: str, factor: float) -> None:
    assert kind_of(name) == kind
    assert bus_factor(kind, 8) == pytest.approx(factor)
    assert bus_factor(kind, 1) == 0.0


def two_ranks() -> list[RankSummary]:
    """In each of two steps rank 1 waits 300 ns for rank 0, then 1000 bytes move in 100 ns; a quarter is hidden."""
    early = [exchanged("allreduce", 1000 * step, 1000 * step + 400, step=step, hidden=100) for step in range(2)]
    late = [exchanged("allreduce", 1000 * step + 300, 1000 * step + 400, step=step) for step in range(2)]
    return [made_rank(0, late), made_rank(1, early)]


def test_moving_waiting_and_bandwidth() -> None:
    ranks = two_ranks()
    (one,) = traffic_of(ranks, match(ranks))
    assert (one.kind, one.ranks, one.groups, one.bytes, one.count) == ("all-reduce", 2, 1, 1000, 1)
    assert (one.moving, one.waiting) == (100, 150)
    assert (one.exposed, one.hidden) == (200, 50)
    assert one.algorithm == pytest.approx(10e9)
    assert one.bus == pytest.approx(10e9)


def test_without_a_device_nothing_is_hidden_or_exposed() -> None:
    ranks = [
        made_rank(rank, [exchanged("gloo:all_reduce", 0, 100, hidden=-1, bytes_=-1, size=-1)]) for rank in range(2)
    ]
    (one,) = traffic_of(ranks, match(ranks))
    assert (one.exposed, one.hidden, one.bytes, one.bus) == (-1, -1, -1, 0)
    assert one.ranks == 2


def test_groups_of_one_purpose_are_one_row_and_many_sizes_are_few() -> None:
    def mine(group: str) -> list[Communication]:
        return [
            exchanged("allreduce", 1000 * at, 1000 * at + 100, bytes_=1000 + at, group=group, about="mesh_tp")
            for at in range(40)
        ]

    ranks = [made_rank(rank, mine("tp0" if rank < 2 else "tp1"), world=4) for rank in range(4)]
    rows = traffic_of(ranks, match(ranks))
    assert {(one.group, one.groups) for one in rows} == {("mesh_tp", 2)}
    assert len(rows) == 2  # below and above 1024 bytes
    assert sum(one.count for one in rows) == 40


def test_of_a_large_job_with_real_transfers() -> None:
    ranks = list(job_summaries(GOOD))
    rows = traffic_of(ranks, match(ranks))
    assert {round(one.bytes / 1e6, 1) for one in rows} == {4.2, 15.8, 26.3, 29.4}
    for one in rows:
        assert (one.kind, one.ranks, one.count) == ("all-reduce", 4, 1)
        assert one.bus == pytest.approx(1.5 * one.algorithm)
        assert 0.2 < one.bus / one.link < 1.0
        assert one.exposed + one.hidden == pytest.approx(one.moving + one.waiting)


@pytest.mark.parametrize(
    ("nodes", "devices", "links", "link"),
    [
        ((0, 0), 1, (450e9, 450e9), 450e9),
        ((0, 1), 1, (450e9, 450e9), 0.0),
        ((-1, -1), 8, (450e9, 450e9), 450e9),
        ((-1, -1), 1, (450e9, 450e9), 0.0),
        ((0, 0), 8, (450e9, 0.0), 0.0),
    ],
)
def test_the_links_rate_counts_inside_of_one_machine(
    nodes: tuple[int, int], devices: int, links: tuple[float, float], link: float
) -> None:
    ranks = [made_rank(row, node=nodes[row], devices=devices, link=links[row]) for row in range(2)]
    assert link_of(ranks) == link


# -- pipelines ----------------------------------------------------------------------------------------------------------


def pipeline(stages: int, microbatches: int, parts: int = 1) -> list[RankSummary]:
    """A pipeline whose stages compute for 6 of 10 ms; every message in its order."""
    events: list[list[Communication]] = [[] for _ in range(stages)]
    at = 0
    for step in range(2):
        for part in range(parts):
            for _ in range(microbatches):
                for source in range(stages if part < parts - 1 else stages - 1):
                    target = (source + 1) % stages
                    for ends in ((source, target), (target, source)):
                        at += 100
                        send = exchanged("send", at, at + 10, step=step, ends=ends)
                        events[ends[0]].append(send)
                        events[ends[1]].append(send._replace(name="recv"))
    return [made_rank(rank, mine, world=stages, device_ns=6_000_000) for rank, mine in enumerate(events)]


@pytest.mark.parametrize(
    ("stages", "microbatches", "parts", "ideal"),
    [(4, 4, 1, 3 / 7), (2, 8, 1, 1 / 9), (8, 32, 1, 7 / 39), (4, 8, 2, 3 / 19), (3, 6, 4, 2 / 26)],
)
def test_what_a_schedule_leaves_idle(stages: int, microbatches: int, parts: int, ideal: float) -> None:
    ranks = pipeline(stages, microbatches, parts)
    (found,) = pipelines_of(compare_ranks(ranks), match(ranks))
    assert (found.ranks, found.microbatches, found.parts) == (list(range(stages)), microbatches, parts)
    assert found.ideal == pytest.approx(ideal)
    assert found.idle == pytest.approx([0.4] * stages)


def test_a_real_pipeline_and_no_pipeline() -> None:
    ranks = list(job_summaries(PIPELINE))
    (found,) = pipelines_of(compare_ranks(ranks), match(ranks))
    assert (found.ranks, found.microbatches, found.parts) == ([0, 1, 2, 3], 4, 1)
    ranks = two_ranks()
    assert pipelines_of(compare_ranks(ranks), match(ranks)) == []


# -- clocks -------------------------------------------------------------------------------------------------------------


def with_clocks(offsets: list[int], groups: list[list[int]], seed: int = 5) -> list[RankSummary]:
    """Collectives of the groups in turn, their ends within some microseconds; each rank's clock is ahead by its offset."""
    random = np.random.default_rng(seed)
    events: list[list[Communication]] = [[] for _ in offsets]
    for number in range(60):
        members = groups[number % len(groups)]
        end = 1_000_000 * (number + 1)
        for rank in members:
            late = int(random.integers(0, 4_000))
            waited = int(random.integers(0, 500_000))
            group = str(number % len(groups))
            events[rank].append(
                exchanged("allreduce", end - 20_000 - waited, end + late, group=group, size=len(members))
            )
    base = 1_700_000_000_000_000_000
    return [
        made_rank(rank, mine, world=len(offsets), base_ns=base + offset)
        for rank, (mine, offset) in enumerate(zip(events, offsets, strict=True))
    ]


@pytest.mark.parametrize(
    "groups",
    [[[0, 1, 2, 3]], [[0, 1], [2, 3], [1, 2]], [[2, 3], [0, 1], [0, 2], [1, 3]]],
    ids=["all", "a chain", "a mesh"],
)
def test_clocks_are_told_apart_through_collectives(groups: list[list[int]]) -> None:
    offsets = [0, 3_000_000, -40_000_000, 2_000]
    ranks = with_clocks(offsets, groups)
    clocks = align_clocks(ranks, match(ranks))
    assert clocks.offset == pytest.approx(offsets, abs=4_000)
    assert (clocks.uncertainty < 4_000).all()
    # What is said is true: the errors lie within three of it.
    assert (np.abs(clocks.offset - offsets) <= 3 * np.maximum(clocks.uncertainty, 1_000)).all()


def test_a_rank_that_shares_nothing_has_no_clock() -> None:
    ranks = with_clocks([0, 5, 7], [[0, 1]])
    clocks = align_clocks(ranks, match(ranks))
    assert np.isnan(clocks.offset).tolist() == [False, False, True]
    assert np.isnan(align_clocks(ranks[2:], match(ranks[2:])).offset).all()


def test_one_step_in_time_needs_no_common_clock() -> None:
    """Ends of a collective are one moment; each rank's times count from what it did first in the step."""
    ahead = [0, 5_000_000]
    ranks = [
        made_rank(
            row,
            [
                exchanged("allreduce", clock + 100, clock + 300),
                exchanged("allgather", clock + 400 + 50 * row, clock + 500),
            ],
            device_ns=1000,
        )
        for row, clock in enumerate(ahead)
    ]
    found = step_in_time(compare_ranks(ranks), match(ranks))
    assert found is not None
    assert [one["what"] for one in found["meetings"]] == ["all-reduce", "all-gather"]
    assert [one["moving"] for one in found["meetings"]] == [200, 50]
    assert found["spans"] == [[(0, 200), (300, 400)], [(0, 200), (350, 400)]]


def test_of_very_many_ranks_the_late_ones_are_shown_in_time() -> None:
    ranks = [
        made_rank(row, [exchanged("allreduce", 100, 300)], world=300, device_ns=9_000_000 if row == 211 else 1_000_000)
        for row in range(300)
    ]
    found = step_in_time(compare_ranks(ranks), match(ranks))
    assert found is not None
    assert 211 in found["rows"]
    assert len(found["rows"]) == len(found["spans"]) == 64


def test_ranks_that_share_nothing_have_no_step_in_time() -> None:
    ranks = [made_rank(row, device_ns=1000) for row in range(2)]
    assert step_in_time(compare_ranks(ranks), match(ranks)) is None
