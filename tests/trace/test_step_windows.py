"""Steps as windows."""

from __future__ import annotations

from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder


def test_device_work_belongs_to_the_step_that_launched_it_however_late_it_runs() -> None:
    b = TraceBuilder()
    kernels: list[int] = []
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            kernels += b.launch("gemm", duration=500)[1:]
    trace = b.build()
    assert trace.steps.number.tolist() == [2, 3, 4]
    assert trace.steps.of_event[kernels].tolist() == [0, 1, 2]


def test_work_launched_by_another_thread_belongs_to_the_step_by_time() -> None:
    b = TraceBuilder()
    with b.step(tail=100.0):
        b.thread = "autograd"
        kernel = b.launch("dgrad")[1]
        b.thread = "100"
    assert b.build().steps.of_event[kernel] == 0


def test_consecutive_steps_leave_no_hole() -> None:
    b = TraceBuilder()
    with b.step():
        b.wait(10)
    between = b.call("cudaEventQuery")
    with b.step():
        b.wait(10)
    after = b.call("cudaDeviceSynchronize")
    steps = b.build().steps
    assert steps.of_event[between] == 0
    assert steps.of_event[after] == -1


def test_without_marks_the_whole_window_is_one_region() -> None:
    b = TraceBuilder()
    with b.op("aten::mm"):
        b.launch("gemm")
    steps = b.build().steps
    assert not steps.recorded
    assert len(steps) == 1
    assert (steps.of_event == 0).all()


def test_serving_marks_are_steps_and_nested_ones_are_not() -> None:
    b = TraceBuilder()
    for _ in range(2):
        with b.span("execute_context_1(8)_generation_2(2)"), b.span("execute_context_1(8)_generation_2(2)"):
            b.launch("attention")
    steps = b.build().steps
    assert steps.source == "serving"
    assert len(steps) == 2


def test_a_trace_without_events_has_one_empty_region() -> None:
    steps = TraceBuilder().build().steps
    assert len(steps) == 1
    assert steps.end[0] == steps.start[0]


def test_a_step_number_of_a_million_digits_is_not_a_step() -> None:
    b = TraceBuilder()
    b.slice("ProfilerStep#" + "9" * 1000, Kind.ANNOTATION, 0, 5)
    assert not b.build().steps.recorded
