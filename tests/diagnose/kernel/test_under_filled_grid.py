"""KER106: grids that leave multiprocessors idle."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed, skipped
from tests.support.builder import H100, TraceBuilder


def program(
    blocks: int,
    *,
    kernel: str = "reduce_kernel",
    duration: float = 100.0,
    other: float = 10.0,
    device: dict[str, Any] | None = None,
    **launch: Any,
) -> Trace:
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    for _ in range(4):
        with b.step():
            with b.op("aten::sum"):
                b.launch(kernel, duration=duration, grid=(blocks, 1, 1), **launch)
            with b.op("aten::add"):
                b.launch("full", duration=other, grid=(1320, 1, 1))
    return b.build()


def test_costs_the_idle_part_of_the_device() -> None:
    finding = found("KER106", program(33))
    assert finding.gain_ns == pytest.approx(100_000 * (1 - 33 / 132))


def test_fires_below_three_quarters_of_the_multiprocessors() -> None:
    assert found("KER106", program(98))
    assert cleared("KER106", program(99))


def test_short_kernels_are_silent() -> None:
    assert cleared("KER106", program(10, duration=20))
    assert found("KER106", program(10, duration=21, other=1))


def test_a_nearly_empty_last_wave() -> None:
    # 128 registers and 128 threads: 4 blocks per SM, 528 at a time.
    launch: dict[str, Any] = {"registers": 128, "block": (128, 1, 1)}
    finding = found("KER106", program(560, **launch))
    assert finding.gain_ns == pytest.approx(100_000 * (1 - 560 / 1056))
    assert cleared("KER106", program(700, **launch))  # the last wave is a third full
    assert cleared("KER106", program(528, **launch))
    assert cleared("KER106", program(1600, **launch))  # three waves and more even out


@pytest.mark.parametrize(
    "kernel",
    [
        "nvjet_sm90_tst_256x128",
        "cutlass3x_sm90_tensorop_warpspecialized",
        "splitKreduce_kernel",
        "ncclDevKernel_AllReduce",
    ],
)
def test_kernels_that_choose_their_grid_are_silent(kernel: str) -> None:
    assert cleared("KER106", program(24, kernel=kernel))


def test_fires_from_five_percent_of_the_computing_time() -> None:
    assert found("KER106", program(33, other=1_850))
    assert cleared("KER106", program(33, other=1_950))


def test_without_device_properties_it_says_what_is_missing() -> None:
    assert "deviceProperties" in needed("KER106", program(33, device={"name": "NVIDIA X"}))


def test_without_kernels_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::mm"):
        pass
    assert skipped("KER106", b.build())


def test_the_thresholds_of_the_last_wave() -> None:
    launch: dict[str, Any] = {"registers": 128, "block": (128, 1, 1)}  # 528 blocks at a time
    found("KER106", program(528 + 131, **launch))
    cleared("KER106", program(528 + 133, **launch))  # a quarter full
    found("KER106", program(2 * 528 + 10, **launch))
    cleared("KER106", program(3 * 528 + 10, **launch))
