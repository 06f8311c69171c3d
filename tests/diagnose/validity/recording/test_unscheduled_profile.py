from __future__ import annotations

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(first_step: int) -> TraceBuilder:
    b = TraceBuilder(first_step=first_step)
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.launch()
    return b


def test_a_recording_that_begins_at_step_0_had_no_warm_up() -> None:
    assert title("MEA104", found("MEA104", run(0).build())).startswith("Recording began at step #0")


def test_one_step_of_warm_up_is_enough() -> None:
    assert cleared("MEA104", run(1).build()) == "the first recorded step is #1"


def test_no_step_marks_at_all() -> None:
    b = TraceBuilder()
    with b.op("aten::mm"):
        b.launch()
    assert "no step marks" in title("MEA104", found("MEA104", b.build()))


def test_the_marks_of_a_serving_engine_are_steps() -> None:
    b = TraceBuilder()
    with b.span("execute_context_0(0)_generation_8(8)"), b.op("aten::mm"):
        b.launch()
    assert "serving" in cleared("MEA104", b.build())


def test_the_recorder_says_that_it_warmed_up() -> None:
    b = TraceBuilder(metadata={"lanewise": {"schema": 1, "warmup": 3}})
    with b.op("aten::mm"):
        b.launch()
    assert "3 step(s)" in cleared("MEA104", b.build())


def test_device_rows_alone_have_no_steps_to_mark() -> None:
    b = TraceBuilder()
    b.kernel("gemm", 10, 5)
    assert b.build().of(Kind.KERNEL).tolist() == [0]
    skipped("MEA104", b.build())
