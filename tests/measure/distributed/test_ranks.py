"""Collectives of several ranks, matched."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.distributed.ranks import Ranks, align, collectives, rank_of
from lanewise.measure.facts import Facts
from tests.support.builder import TraceBuilder
from tests.support.corpus import facts_of


def rank_trace(rank: int, durations: list[float], *, sizes: list[int] | None = None, orphan: bool = False) -> Facts:
    b = TraceBuilder()
    if orphan:
        b.kernel("ncclDevKernel_AllReduce", 0, 10, stream="20")
    b.wait(50)
    for _ in range(3):
        with b.step():
            for i, duration in enumerate(durations):
                with b.op("aten::mm"):
                    b.launch("gemm", duration=20)
                b.collective(elements=(sizes or [1000] * len(durations))[i], duration=duration, rank=rank)
            b.synchronize()
    return Facts(b.build())


def matched(*ranks: Facts) -> Ranks:
    found = align(ranks)
    assert found is not None
    return found


def test_the_shortest_is_the_transfer_and_the_rest_is_waiting() -> None:
    found = matched(rank_trace(0, [500, 30]), rank_trace(1, [100, 40]))
    assert found.rank == (0, 1)
    assert found.shortest.tolist() == [100_000, 30_000] * 3
    assert found.waiting[:2].tolist() == [[400_000, 0], [0, 10_000]]
    assert found.last.tolist() == [1, 0] * 3
    assert found.steady.tolist() == [False, False, True, True, True, True]


def test_equal_sizes_are_matched_in_order_and_others_by_size() -> None:
    a = rank_trace(0, [10, 20, 30], sizes=[100, 200, 100])
    b = rank_trace(1, [11, 21, 31], sizes=[100, 200, 100])
    assert matched(a, b).duration[:3].tolist() == [[10_000, 11_000], [20_000, 21_000], [30_000, 31_000]]


def test_work_from_before_the_recording_is_left_out() -> None:
    found = matched(rank_trace(0, [10], orphan=True), rank_trace(1, [20]))
    assert (len(found.last), found.unmatched) == (3, 0)


def test_what_only_one_rank_recorded_is_counted() -> None:
    found = matched(rank_trace(0, [10, 10]), rank_trace(1, [20]))
    assert (len(found.last), found.unmatched) == (3, 3)


def test_one_rank_alone_and_strangers_match_nothing() -> None:
    assert align([rank_trace(0, [10])]) is None
    assert align([rank_trace(0, [10]), rank_trace(1, [10], sizes=[7])]) is None


def test_message_sizes() -> None:
    found = collectives(rank_trace(0, [10], sizes=[1 << 20]))
    assert found.bytes.tolist() == [4 << 20] * 3


@pytest.mark.parametrize(
    ("name", "late", "least"),
    [
        ("08_ddp_good", 0, 12),
        ("08_ddp_straggler_rank1_8ms", 1, 12),
        ("08_fsdp2", 1, 50),
        ("08_manual_allreduce_no_overlap", 0, 216),
    ],
)
def test_real_pairs_name_the_rank_that_came_last(name: str, late: int, least: int) -> None:
    pair = [facts_of(f"{name}_rank{rank}") for rank in range(2)]
    found = matched(*pair)
    assert found.rank == (0, 1)
    assert found.unmatched == 0
    assert np.count_nonzero(found.last == late) == least
    assert 0 <= found.clock_spread < 11_000  # the ends of matched collectives agree within 11 us
    assert [rank_of(facts) for facts in pair] == [0, 1]
