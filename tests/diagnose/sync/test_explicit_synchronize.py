"""SYN105: synchronising in the loop."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(api: str = "cudaDeviceSynchronize", *, after: float = 100, compute: float = 900, inside: str = "") -> Trace:
    """Each step launches, waits, and then thinks for a while before the next launch."""
    b = TraceBuilder()
    for _ in range(5):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
            if inside:
                with b.op(inside):
                    b.synchronize(api)
            else:
                b.synchronize(api)
            b.wait(after)
    return b.build()


def test_costs_the_idle_time_after_the_wait_not_the_wait() -> None:
    finding = found("SYN105", program())
    assert 90_000 < finding.gain_ns < 115_000
    assert title("SYN105", finding).startswith("1 wait per step for the whole device or a stream")


def test_fires_from_one_percent_of_the_step() -> None:
    # About 3 us pass between wait and launch even without thinking.
    assert cleared("SYN105", program(after=0, compute=2_000))
    assert cleared("SYN105", program(after=12, compute=2_000))
    assert found("SYN105", program(after=20, compute=2_000))


@pytest.mark.parametrize("name", ["aten::item", "aten::copy_"])
def test_waits_inside_operators_are_other_rules(name: str) -> None:
    assert cleared("SYN105", program(inside=name))


def test_event_waits_are_another_rules() -> None:
    assert cleared("SYN105", program("cudaEventSynchronize"))


def test_the_profilers_final_wait_is_no_ones() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::mm"):
            b.launch("gemm", duration=500)
    b.wait(50)
    b.synchronize("cudaDeviceSynchronize")
    assert cleared("SYN105", b.build())


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        b.call("cudaDeviceSynchronize")
    assert skipped("SYN105", b.build())
