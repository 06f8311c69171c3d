from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(
    own: float, *, queries: int = 0, query: float = 1.0, launches: int = 1, name: str = "aten::bmm"
) -> TraceBuilder:
    """Four steps of 1000 us with one operator that takes `own` us before its launches."""
    b = TraceBuilder()
    for _ in range(4):
        begin = b.now
        with b.step(head=0, tail=0):
            with b.op(name, head=own, tail=0):
                for _ in range(queries):
                    b.call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", duration=query)
                for _ in range(launches):
                    b.launch(call=5)
            b.wait(begin + 1000 - b.now)
    return b


def test_own_time_before_a_single_launch() -> None:
    result = found("LAU104", run(150).build())
    assert title("LAU104", result) == (
        "15 % of the host's time per step is library planning: 150.0 us, most of it in aten::bmm."
    )
    assert result.gain_ns == pytest.approx(150_000, rel=0.01)


def test_queries_count_by_their_time_only() -> None:
    cleared("LAU104", run(10, queries=100, query=0.9).build())
    assert found("LAU104", run(10, queries=100, query=1.1).build()).gain_ns == pytest.approx(110_000)


def test_the_thresholds() -> None:
    cleared("LAU104", run(100).build(), share_from=0.05)
    found("LAU104", run(101).build(), share_from=0.05)
    cleared("LAU104", run(101).build(), share_from=0.101)


def test_own_time_is_that_of_the_step_without_the_profiler() -> None:
    cleared("LAU104", run(150).build(), unprofiled_us=500)


def test_an_operator_with_several_launches_does_its_own_work() -> None:
    cleared("LAU104", run(300, launches=2).build())


def test_a_compiled_region_is_no_library() -> None:
    cleared("LAU104", run(300, name="Torch-Compiled Region: 0/0").build())


def test_the_profilers_stall_is_no_planning() -> None:
    b = run(900)
    b.overhead("Activity Buffer Request", 1050, 800)
    b.overhead("Activity Buffer Request", 2050, 800)
    b.overhead("Activity Buffer Request", 3050, 800)
    cleared("LAU104", b.build())


def test_device_rows_alone() -> None:
    b = TraceBuilder()
    b.kernel("gemm", 1, 5)
    skipped("LAU104", b.build())


def test_a_few_launches_of_milliseconds_each_are_planning_too() -> None:
    """cuDNN's attention launches two kernels after 36 ms of choosing."""

    def launching(own: float) -> TraceBuilder:
        b = TraceBuilder()
        for _ in range(4):
            with b.step(), b.op("aten::_cudnn_attention_forward", head=own, tail=0):
                b.launch(call=5)
                b.launch(call=5)
        return b

    found("LAU104", launching(2_100).build())
    cleared("LAU104", launching(1_999).build())


def test_below_twenty_microseconds_there_is_nothing_to_choose() -> None:
    def short(query: float) -> TraceBuilder:
        b = TraceBuilder()
        for _ in range(4):
            with b.step(head=0, tail=0), b.op("aten::mm", head=10, tail=0):
                b.call("cudaFuncGetAttributes", duration=query)
                b.launch(call=5)
        return b

    found("LAU104", short(20).build())
    cleared("LAU104", short(19.9).build())
