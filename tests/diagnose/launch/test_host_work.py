from __future__ import annotations

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(launches: int, *, operator: float = 300.0, kernel: float = 20.0, python: float = 0.0) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(launches):
                with b.op("aten::addmm", head=operator - 10, tail=5):
                    b.launch(duration=kernel, call=5)
            with b.op("aten::sort", head=operator, tail=0):
                pass
            b.wait(python)
    return b


def test_a_few_launches_with_much_host_work_have_a_way_on() -> None:
    result = found("LAU111", run(5).build())
    assert title("LAU111", result).startswith("Operators spend 1.80 ms per step on the host, the most in aten::addmm")
    assert title("LAU111", result).endswith("to make 5 launches.")
    assert result.gain_ns > 1_500_000


def test_it_fires_from_a_tenth_of_the_step_in_operators() -> None:
    found("LAU111", run(5, python=10_000).build())
    cleared("LAU111", run(5, python=20_000).build())


def test_many_short_kernels_are_another_finding() -> None:
    cleared("LAU111", run(30, kernel=2).build())


def test_a_device_that_does_not_wait_needs_none() -> None:
    skipped("LAU111", run(5, kernel=2_000).build())
