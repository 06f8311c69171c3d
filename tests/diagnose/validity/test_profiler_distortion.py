from __future__ import annotations

from typing import Any

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(*, operators: int = 1, step: float = 120.0, kernel: float = 5.0, recorded: Any = None) -> TraceBuilder:
    """Four steps of the given length, with that many operators and one launch at the end."""
    b = TraceBuilder(metadata=None if recorded is None else {"lanewise": recorded})
    for _ in range(4):
        with b.step(head=0, tail=0):
            for _ in range(operators - 1):
                with b.op("aten::t", head=0.5, tail=0.5):
                    pass
            with b.op("aten::mm", head=step - 5 - operators + 1, tail=0):
                b.launch(call=5, delay=5, duration=kernel)
    return b


def test_the_recorded_step_against_the_unprofiled_one() -> None:
    result = found("MEA105", run().build(), unprofiled_us=60)
    assert "2.0x as long: 120.0 us with the profiler, 60.0 us without" in title("MEA105", result)
    assert result.gain_ns == 0


def test_what_the_recorder_measured_is_what_is_said() -> None:
    # The trace's steps take 120 us with their marks; the recorder leaves those out on both sides.
    times = {"p20_us": 90.0, "p80_us": 90.0, "samples": 10, "steps": 10, "method": "host"}
    recorded = {
        "unprofiled_step_us": 60.0,
        "unprofiled": times | {"median_us": 60.0},
        "profiled": times | {"median_us": 90.0},
        "distortion": 1.5,
    }
    trace = run(recorded=recorded).build()
    result = found("MEA105", trace, unprofiled_us=60)
    assert "1.5x as long: 90.0 us with the profiler, 60.0 us without" in title("MEA105", result)
    # Another time from outside overrules the recorder's.
    assert "3.0x as long: 120.0 us with the profiler, 40.0 us" in title(
        "MEA105", found("MEA105", trace, unprofiled_us=40)
    )


def test_the_threshold_is_one_fifth_more() -> None:
    cleared("MEA105", run().build(), unprofiled_us=100)
    found("MEA105", run().build(), unprofiled_us=99.9)


def test_without_the_unprofiled_time_many_rows_make_it_likely() -> None:
    result = found("MEA105", run(operators=13).build())
    assert result.confidence == "low"
    assert "13 operator rows per step" in title("MEA105", result)
    assert "not known" in cleared("MEA105", run(operators=12).build())


def test_a_device_bound_step_hides_what_the_profiler_costs() -> None:
    assert "hidden" in skipped("MEA105", run(operators=60, kernel=500).build())
