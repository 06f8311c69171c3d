from __future__ import annotations

import pytest

from lanewise.diagnose.explain import explain
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(slow: dict[int, float], *, steps: int = 12, kernel: float = 1_000.0, frame: str = "") -> TraceBuilder:
    """Device-bound steps of 1 ms; before some of them the host does something else for so long, us."""
    b = TraceBuilder()
    for number in range(steps):
        with b.step():
            if number in slow and frame:
                with b.frame(frame):
                    b.wait(slow[number])
            elif number in slow:
                b.wait(slow[number])
            with b.op("aten::mm"):
                b.launch("gemm", duration=kernel)
            b.synchronize()
    return b


def test_slow_steps_are_named_with_their_cause() -> None:
    result = found("MEA114", run({4: 30_000, 9: 30_000}, frame="train.py(9): save").build())
    assert title("MEA114", result).startswith("2 of 11 steps took 31.0 ms instead of 1.01 ms, 87 % of the whole time")
    assert title("MEA114", result).endswith("in them the GPU waits for the host, in train.py(9): save.")
    assert result.location is not None
    assert result.location.line == 9


def test_the_verdict_weighs_all_steps_where_slow_ones_come_again() -> None:
    of = explain(run({4: 30_000, 9: 30_000}, frame="train.py(9): save").build())
    assert of.regime.name == "host-bound"
    assert of.regime.step_us == pytest.approx((11 * 1_015 + 60_000) / 11, rel=0.05)
    assert of.regime.recorded_step_us == pytest.approx(of.regime.step_us, rel=0.05)
    assert of.verdict.startswith("2 of 11 steps took 31.0 ms instead of")
    first = next(f for f in of.findings if f.kind == "problem")
    assert first.code == "LAU110"
    assert first.recoverable_us_per_step == pytest.approx(60_000 / 11, rel=0.1)
    assert not [f for f in of.findings if f.code == "MEA110"]


def test_a_single_slow_step_is_named_and_counts_for_nothing_else() -> None:
    of = explain(run({4: 30_000}).build())
    assert of.regime.name == "device-bound"
    assert of.verdict.startswith("1 of 11 steps took 31.0 ms")


def test_slow_steps_may_be_the_devices() -> None:
    b = TraceBuilder()
    for number in range(12):
        with b.step(), b.op("aten::mm"):
            b.launch("evaluation" if number in (3, 7) else "gemm", duration=9_000 if number in (3, 7) else 500)
    assert title("MEA114", found("MEA114", b.build())).endswith("the GPU computes longer, in evaluation.")


def test_without_a_device_the_operator_is_named() -> None:
    b = TraceBuilder(metadata={})
    for number in range(12):
        with b.step(), b.op("aten::sort" if number in (3, 7) else "aten::mm"):
            b.wait(50_000 if number in (3, 7) else 1_000)
    assert title("MEA114", found("MEA114", b.build())).endswith("the time goes elsewhere than usual, in aten::sort.")


def test_slow_steps_matter_from_a_threshold_on() -> None:
    found("MEA114", run({4: 3_000, 9: 3_000}).build())  # 6 of 17 ms
    cleared("MEA114", run({4: 1_200, 9: 1_200}).build())  # 2.4 of 13.4 ms


def test_silent_among_few_steps_and_without_any() -> None:
    cleared("MEA114", run({2: 30_000}, steps=4).build())
    b = TraceBuilder()
    with b.op("aten::mm"):
        b.launch()
    skipped("MEA114", b.build())
