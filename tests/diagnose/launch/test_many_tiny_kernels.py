from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(launches: int, *, kernel: float = 5.0, operator: float = 20.0) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(launches):
                with b.op("aten::add", head=operator - 10, tail=5):
                    b.launch(duration=kernel, call=5)
    return b


def test_short_kernels_behind_long_operators() -> None:
    result = found("LAU101", run(20).build())
    assert (
        title("LAU101", result)
        == "20 launches per step for kernels of about 5.00 us; each launch costs the host 20.0 us."
    )
    assert result.gain_ns == pytest.approx(294_350)
    assert result.events is not None
    assert len(result.events) == 60


def test_the_thresholds_are_twenty_launches_of_less_than_ten_microseconds() -> None:
    cleared("LAU101", run(19).build())
    found("LAU101", run(20, kernel=9.9).build())
    cleared("LAU101", run(20, kernel=10).build())


def test_short_kernels_behind_a_deep_queue_cost_nothing() -> None:
    b = run(50, kernel=9.5, operator=11)
    assert "hidden" in skipped("LAU101", b.build())
