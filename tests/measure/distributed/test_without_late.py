"""What a job gains without what a late rank does more."""

from __future__ import annotations

import pytest

from lanewise.measure.core import Core
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.rank_summary import summarise
from lanewise.measure.distributed.without_late import delay_of
from tests.support.builder import TraceBuilder


def rank(number: int, copies: int) -> Core:
    """Steps of 2 ms on the host, with copies at the beginning that take 1 ms each."""
    b = TraceBuilder()
    for _ in range(6):
        with b.step():
            for _ in range(copies):
                with b.op("aten::copy_"):
                    b.copy(source="pageable", duration=1000.0)
            for _ in range(4):
                b.wait(300.0)
                with b.op("aten::mm", head=100.0, tail=100.0):
                    b.launch("gemm", duration=50.0)
            b.collective(elements=1_000_000, duration=20.0, rank=number)
            b.synchronize("cudaDeviceSynchronize")
    return Core(b.build())


def test_a_copy_that_holds_the_host_goes_with_its_call() -> None:
    """Five copies instead of one: from pageable memory the host sits in each until it is over."""
    cores = [rank(0, 1), rank(1, 5)]
    job = compare_ranks([summarise(core) for core in cores])
    (late,) = job.late
    assert late.index == 1
    assert late.more_ns == pytest.approx(4e6, rel=0.05)
    _, delay = delay_of(cores[1], late, float(job.host_factor[1]))
    assert delay == pytest.approx(4e6, rel=0.05)
