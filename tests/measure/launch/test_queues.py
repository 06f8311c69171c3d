"""The queue in front of the device."""

from __future__ import annotations

import pytest

from lanewise.measure.facts import Facts
from lanewise.measure.launch.queues import Queue
from tests.support.builder import TraceBuilder
from tests.support.corpus import facts_of


def queue(b: TraceBuilder) -> Queue:
    return Facts(b.build()).queue


def test_depth_rises_with_launches_and_falls_with_completions() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(3):
            b.launch("gemm", duration=100, call=5, delay=10)
    found = queue(b)
    # Launched at 1, 6 and 11 us; done at 111, 211 and 311 us.
    assert list(zip(found.time.tolist(), found.depth.tolist(), strict=True)) == [
        (1_000, 1),
        (6_000, 2),
        (11_000, 3),
        (111_000, 2),
        (211_000, 1),
        (311_000, 0),
    ]


def test_a_queue_that_runs_dry_is_empty_part_of_the_step() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            b.launch("gemm", duration=50, delay=10)
            b.wait(139)
    found = queue(b)
    # Per step of 146 us: 60 us from launch to completion.
    assert found.per_step["empty"][1] == pytest.approx(1 - 60 / 146, abs=0.01)
    assert found.per_step["deepest"].tolist() == [1, 1, 1]
    assert found.per_step["mean"][1] == pytest.approx(60 / 146, abs=0.01)


def test_slow_launches_behind_a_deep_queue_are_back_pressure() -> None:
    b = TraceBuilder()
    with b.step():
        for i in range(100):
            b.launch("gemm", duration=100, call=60 if i > 80 else 2)
    found = queue(b)
    assert (found.slow, found.back_pressure) == (19, True)
    assert found.slow_time == 19 * 60_000


def test_slow_launches_in_front_of_an_empty_queue_are_not() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(100):
            b.launch("gemm", duration=1, call=60)
    found = queue(b)
    assert found.launch_p99 == 60_000
    assert (found.slow, found.back_pressure) == (0, False)


def test_the_drivers_own_row_proves_it() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm", duration=10)
        b.overhead("Command Buffer Full", b.now, 30)
    assert queue(b).back_pressure


def test_without_device_work_the_queue_is_empty() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    found = queue(b)
    assert (found.launch_p99, found.per_step["empty"].tolist()) == (-1.0, [1.0])


def test_a_real_rank_that_waits_has_a_deep_queue_and_back_pressure() -> None:
    waiting, late = (
        facts_of("08_ddp_straggler_rank1_8ms_rank0").queue,
        facts_of("08_ddp_straggler_rank1_8ms_rank1").queue,
    )
    assert waiting.back_pressure
    assert not late.back_pressure
    assert waiting.per_step["mean"][1] > 100 > 2 > late.per_step["mean"][1]
