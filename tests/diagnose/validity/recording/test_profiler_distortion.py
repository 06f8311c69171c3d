from __future__ import annotations

from typing import Any

import pytest

from lanewise.diagnose.registry import find_rule
from lanewise.diagnose.rule import Clear, Found, Outcome
from lanewise.measure.facts import Facts
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, title
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


def measured(ratio: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """What the recorder says: 60 us without the profiler, and that ratio with its interval."""
    times = {"samples": 10, "steps": 10, "method": "host"}
    with_it = ratio * 60.0
    return {
        "unprofiled_step_us": 60.0,
        "unprofiled": times | {"median_us": 60.0, "p20_us": 60.0, "p80_us": 60.0},
        "profiled": times | {"median_us": with_it, "p20_us": with_it, "p80_us": with_it},
        "distortion": ratio,
        **({} if low is None else {"distortion_low": low, "distortion_high": high}),
    }


def test_the_recorded_step_against_the_unprofiled_one() -> None:
    result = found("MEA105", run().build(), unprofiled_us=60)
    assert "2.0x as long: 120.0 us instead of 60.0 us" in title("MEA105", result)
    assert result.gain_ns == 0


def test_what_the_recorder_measured_is_what_is_said() -> None:
    # The trace's steps take 120 us with their marks; the recorder leaves those out on both sides.
    trace = run(recorded=measured(1.5)).build()
    result = found("MEA105", trace, unprofiled_us=60)
    assert "1.5x as long: 90.0 us instead of 60.0 us" in title("MEA105", result)
    # Another time from outside overrules the recorder's.
    assert "3.0x as long: 120.0 us instead of 40.0 us" in title("MEA105", found("MEA105", trace, unprofiled_us=40))


@pytest.mark.parametrize(
    ("ratio", "low", "high"),
    [(23.0, 0.05, 75.0), (1.5, 0.98, 1.9), (6.0, 2.1, 9.0), (1.0, 0.4, 2.6)],  # the last: no cost is no fact either
)
def test_a_ratio_that_its_interval_does_not_support_is_not_stated(ratio: float, low: float, high: float) -> None:
    result = found("MEA105", run(recorded=measured(ratio, low, high)).build(), unprofiled_us=60)
    text = title("MEA105", result)
    assert "Recording made" not in text
    assert "Steps vary too much to tell" in text
    assert result.confidence == "low"


def test_a_wide_interval_becomes_a_range() -> None:
    result = found("MEA105", run(recorded=measured(2.0, 1.4, 2.8)).build(), unprofiled_us=60)
    assert "made the step 1.4x to 2.8x as long" in title("MEA105", result)
    assert "2.0x" not in title("MEA105", result)
    narrow = found("MEA105", run(recorded=measured(2.0, 1.7, 2.3)).build(), unprofiled_us=60)
    assert "made the step 2.0x as long" in title("MEA105", narrow)


def test_samples_too_few_for_an_interval_are_judged_by_their_spread() -> None:
    recorded = measured(23.0)
    recorded["unprofiled"] |= {"p20_us": 20.0, "p80_us": 900.0}
    result = found("MEA105", run(recorded=recorded).build(), unprofiled_us=60)
    assert "Steps vary too much to tell" in title("MEA105", result)


def test_the_steps_of_another_recording_may_vary_too() -> None:
    b = TraceBuilder()
    for step in (20.0, 900.0, 30.0, 800.0, 25.0, 850.0):
        with b.step(head=0, tail=0), b.op("aten::mm", head=step, tail=0):
            b.launch(call=5, delay=5, duration=5)
    assert "Steps vary too much to tell" in title("MEA105", found("MEA105", b.build(), unprofiled_us=40))


def test_the_threshold_is_one_fifth_more() -> None:
    cleared("MEA105", run().build(), unprofiled_us=100)
    found("MEA105", run().build(), unprofiled_us=99.9)


def computed(trace: Trace) -> Outcome:
    """What the rule says where nobody timed the step."""
    return find_rule("MEA105").check(Facts(trace))


def test_without_the_unprofiled_time_it_is_computed() -> None:
    result = computed(run(operators=20).build())
    assert isinstance(result, Found)
    assert result.confidence == "medium"
    assert "(computed)" not in title("MEA105", result)
    assert "to 120.0 us" in title("MEA105", result)
    step, low, high = (float(result.values[name].value) for name in ("step", "low", "high"))  # type: ignore[arg-type]
    assert low < step < high <= 120_000


def test_a_device_bound_step_takes_as_long_without_the_profiler() -> None:
    assert isinstance(computed(run(operators=60, kernel=500).build()), Clear)
