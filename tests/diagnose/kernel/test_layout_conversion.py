"""KER107: layout conversions around convolutions."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def network(layers: int, *, convolution: float = 100.0, conversion: float = 10.0, convert: bool = True) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(layers):
                with b.op("aten::cudnn_convolution"):
                    if convert:
                        b.launch("void cudnn::ops::nchwToNhwcKernel<__half>", duration=conversion)
                    b.launch("sm80_xmma_fprop_implicit_gemm_tensor16x8x16", duration=convolution)
                    if convert:
                        b.launch("void cudnn::ops::nhwcToNchwKernel<__half>", duration=conversion)
    return b.build()


def test_device_bound_it_costs_the_conversions() -> None:
    finding = found("KER107", network(3))
    assert finding.gain_ns == pytest.approx(60_000)
    assert title("KER107", finding) == (
        "6 layout conversions per step between channels-first and channels-last: 60.0 us, 17 % of the device's time."
    )


def test_without_operators_the_kernels_are_named() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            for _ in range(3):
                b.launch("void cudnn::ops::nchwToNhwcKernel<__half>", duration=10)
                b.launch("gemm", duration=50)
    (table,) = found("KER107", b.build()).evidence
    assert [row["operator"] for row in table.rows] == ["cudnn::ops::nchwToNhwcKernel"]


def test_host_bound_it_costs_the_launches() -> None:
    finding = found("KER107", network(3), unprofiled_us=5_000)
    assert finding.gain_ns > 0


def test_fires_from_two_percent_of_the_devices_time() -> None:
    assert found("KER107", network(2, conversion=1.05))
    assert cleared("KER107", network(2, conversion=0.95))


def test_fires_from_two_conversions_one_at_the_entry_is_silent() -> None:
    assert found("KER107", network(1))
    b = TraceBuilder()
    for _ in range(4):
        with b.step(), b.op("aten::cudnn_convolution"):
            b.launch("nchwToNhwcKernel", duration=50)
            b.launch("fprop", duration=50)
    assert cleared("KER107", b.build())


def test_channels_last_is_clear() -> None:
    assert cleared("KER107", network(3, convert=False))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::cudnn_convolution"):
        pass
    assert skipped("KER107", b.build())
