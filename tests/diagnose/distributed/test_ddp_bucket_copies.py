"""DIS106: gradients copied out of DDP's buckets."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder

COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def program(gradients: int = 20, *, name: str = COPY, compute: float = 500, duration: float = 2) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.span("DistributedDataParallel.forward"):
            for _ in range(gradients):
                with b.span(name), b.op("aten::copy_"):
                    b.launch("elementwise_kernel", duration=duration)
            with b.op("aten::mm"):
                b.launch("gemm", duration=compute)
    return b.build()


def test_host_bound_it_costs_the_rows() -> None:
    finding = found("DIS106", program(compute=10))
    assert finding.gain_ns == pytest.approx(20 * 9_000, rel=0.01)
    assert title("DIS106", finding).startswith(
        "DDP copies 20 gradients per step between its buckets and `.grad`: 180.0 us"
    )


def test_device_bound_it_costs_the_kernels() -> None:
    finding = found("DIS106", program(duration=40))
    assert finding.gain_ns == pytest.approx(20 * 40_000)


def test_fires_from_one_percent_of_the_step() -> None:
    assert found("DIS106", program(2, compute=1_700))
    assert cleared("DIS106", program(2, compute=1_900))


def test_views_into_the_bucket_are_clear() -> None:
    assert "views" in cleared("DIS106", program(0))


def test_without_ddp_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch("gemm")
    assert skipped("DIS106", b.build())
