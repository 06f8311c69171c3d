from __future__ import annotations

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped
from tests.support.builder import TraceBuilder


def run(*loads: tuple[int, float], compiling: int = -1) -> TraceBuilder:
    """Four steps of 1000 us; (step, duration) loads a kernel in the middle of one."""
    b = TraceBuilder()
    for step in range(4):
        begin = b.now
        with b.step(head=0, tail=0), b.op("aten::mm", head=500, tail=495):
            b.launch(call=5, duration=5)
        if step == compiling:
            b.slice("inner (dynamo_timed)", Kind.OPERATOR, begin + 100, 300)
        for at, duration in loads:
            if at == step:
                b.overhead("Lazy Function Loading", begin + 510, duration)
    return b


def test_loading_in_a_steady_step_is_charged_per_step() -> None:
    result = found("MEA102", run((2, 90.0)).build())
    assert list(result.steps) == [2]
    assert result.evidence[0].rows == [
        {"row": "Lazy Function Loading", "step": 4, "time": 90_000, "inside": "aten::mm"}
    ]


def test_the_threshold_is_one_percent_of_the_step() -> None:
    cleared("MEA102", run((2, 30.0)).build())
    found("MEA102", run((2, 30.1)).build())


def test_the_first_step_may_load() -> None:
    cleared("MEA102", run((0, 400.0)).build())


def test_a_step_that_compiles_loads_what_it_compiled() -> None:
    cleared("MEA102", run((2, 400.0), compiling=2).build())


def test_a_recording_without_steps_has_no_steady_part() -> None:
    b = TraceBuilder()
    with b.op("aten::mm"):
        b.launch()
    b.overhead("Lazy Function Loading", 1, 5)
    skipped("MEA102", b.build())
