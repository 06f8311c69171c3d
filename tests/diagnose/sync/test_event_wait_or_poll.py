"""SYN106: waiting for events on a thread that should launch."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(
    wait: float = 50, *, polls: int = 0, thread: str = "100", annotation: str = "", compute: float = 1000
) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
            here = b.now
            if annotation:
                with b.span(annotation):
                    b.call("cudaEventSynchronize", duration=wait)
            elif wait:
                b.slice("cudaEventSynchronize", Kind.RUNTIME, here, wait, thread=thread)
                b.wait(wait if thread == "100" else 0)
            for i in range(polls):
                b.slice("cudaEventQuery", Kind.RUNTIME, here + wait + i * 0.2, 0.1, thread=thread)
            b.wait(polls * 0.2)
            b.synchronize()
    return b.build()


def test_costs_the_waits_on_the_launching_thread() -> None:
    # Beside a device that computes all the time a wait gives nothing; beside one that idles, itself.
    assert found("SYN106", program()).gain_ns == 0
    finding = found("SYN106", program(compute=10))
    assert finding.gain_ns == pytest.approx(27_000)  # the step still waits for its kernel
    assert title("SYN106", finding).startswith("1 call per step to wait for events")


def test_fires_from_one_percent_of_the_step() -> None:
    assert found("SYN106", program(21, compute=2_000))
    assert cleared("SYN106", program(19, compute=2_000))


def test_fires_above_a_thousand_polls() -> None:
    assert found("SYN106", program(0, polls=1_001, compute=10)).gain_ns > 0.9 * 1_001 * 100
    assert cleared("SYN106", program(0, polls=1_000))


def test_a_thread_that_launches_nothing_may_wait() -> None:
    assert cleared("SYN106", program(500, thread="900"))


def test_ddps_statistics_are_named_as_such() -> None:
    assert title("SYN106", found("SYN106", program(annotation="DistributedDataParallel.forward"))).startswith(
        "DDP's own runtime statistics wait for events for 50.0 us per step"
    )


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.call("cudaEventSynchronize")
    assert skipped("SYN106", b.build())
