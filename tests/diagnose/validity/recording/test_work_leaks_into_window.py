from __future__ import annotations

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(delay: float, *, orphans: int = 0) -> TraceBuilder:
    b = TraceBuilder()
    for at in range(orphans):
        b.kernel("earlier", 1 + at, 1)
    with b.step(), b.op("aten::mm"):
        b.launch("gemm", call=5, delay=delay)
    with b.step(), b.op("aten::mm"):
        b.launch("gemm")
    return b


def test_work_without_a_launch_at_the_head() -> None:
    result = found("MEA111", run(8, orphans=2).build())
    assert "2 device ops without a launch" in title("MEA111", result)
    assert len(result.evidence[0].rows) == 2


def test_a_first_op_that_waits_although_it_was_launched() -> None:
    assert "the first recorded op waited 2.0" in title("MEA111", found("MEA111", run(2000).build()))


def test_the_wait_may_be_two_hundred_microseconds_after_the_launch_returned() -> None:
    cleared("MEA111", run(205).build())
    found("MEA111", run(206).build())


def test_a_pageable_copy_blocks_by_itself() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::copy_"):
        b.copy("HtoD", source="pageable", delay=900)
    cleared("MEA111", b.build())


def test_work_without_a_launch_elsewhere_is_lost_work() -> None:
    b = run(8)
    b.kernel("stray", b.now + 50, 5)
    with b.step(), b.op("aten::mm"):
        b.launch("gemm", delay=100)
    cleared("MEA111", b.build())


def test_no_device_work() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    skipped("MEA111", b.build())
