"""MEM101: driver allocations in warm steps."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, title
from tests.support.builder import TraceBuilder


def program(
    api: str = "cudaMalloc", *, duration: float = 100, first_only: bool = False, compute: float = 1000
) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            with b.op("aten::empty"):
                if not first_only or step == 0:
                    b.call(api, duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
            b.synchronize()
    return b.build()


@pytest.mark.parametrize("api", ["cudaMalloc", "cudaHostAlloc", "cuMemCreate", "hipMalloc"])
def test_costs_the_calls(api: str) -> None:
    finding = found("MEM101", program(api))
    assert finding.gain_ns == pytest.approx(100_000)
    assert title("MEM101", finding).startswith("1 call per step to the driver's memory allocator: 100.0 us")


def test_a_free_also_costs_what_the_device_idles_afterwards() -> None:
    assert found("MEM101", program("cudaFree")).gain_ns >= 100_000


def test_fires_from_half_a_percent_of_the_step() -> None:
    # A step of about 2,020 us.
    assert found("MEM101", program(duration=11, compute=2_000))
    assert cleared("MEM101", program(duration=9, compute=2_000))


def test_the_first_step_may_allocate() -> None:
    assert cleared("MEM101", program(first_only=True))


def test_it_speaks_of_a_program_that_only_asks_for_memory() -> None:
    b = TraceBuilder()
    with b.step():
        b.call("cudaMalloc")
    assert found("MEM101", b.build()).gain_ns == 3_000  # with the microsecond before it, in which it is called
