from __future__ import annotations

from tests.diagnose.outcomes import cleared, found, title
from tests.support.builder import TraceBuilder


def test_a_request_that_stops_a_thread_is_the_profilers() -> None:
    b = TraceBuilder(first_step=0)
    with b.step(), b.op("aten::mm", head=2500):
        b.launch()
    with b.step(), b.op("aten::mm"):
        b.launch()
    b.overhead("Activity Buffer Request", 50, 2400)
    result = found("MEA103", b.build())
    assert title("MEA103", result) == (
        "2.40 ms of step #0 is the profiler asking for an event buffer while aten::mm is stalled: the profiler's "
        "time, not the program's."
    )
    assert (result.gain_ns, list(result.steps)) == (0, [0])


def test_a_request_during_which_the_threads_keep_working_is_harmless() -> None:
    b = TraceBuilder()
    with b.step():
        for _ in range(100):
            with b.op("aten::add", head=5, tail=5):
                b.launch()
    b.overhead("Activity Buffer Request", 100, 1200)
    assert "kept working" in cleared("MEA103", b.build())


def test_a_request_outside_every_step_touches_none() -> None:
    b = TraceBuilder()
    with b.op("setup", head=3000):
        b.launch()
    with b.step(), b.op("aten::mm"):
        b.launch()
    b.overhead("Activity Buffer Request", 100, 2400)
    cleared("MEA103", b.build())


def test_without_a_request_there_is_nothing_to_say() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm", head=2500):
        b.launch()
    assert "no buffer request" in cleared("MEA103", b.build())
