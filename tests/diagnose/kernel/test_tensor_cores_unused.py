"""KER104: matrix work on the plain units."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.report.model import TextBlock
from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import H100, TraceBuilder

PLAIN = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize2x4x1_ffma_aligna4_execute_kernel"
TENSOR = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel"


def program(
    kernel: str,
    duration: float = 1000,
    other: float = 100,
    *,
    device: dict[str, Any] | None = None,
    types: str = "float",
) -> Trace:
    b = TraceBuilder(metadata={"deviceProperties": [device or H100]})
    for _ in range(4):
        with b.step():
            with b.op("aten::mm", dims=[[64, 64], [64, 64]], types=[types, types]):
                b.launch(kernel, duration=duration)
            with b.op("aten::add"):
                b.launch("vectorized_elementwise_kernel", duration=other)
    return b.build()


def test_the_gain_is_what_tf32_would_save() -> None:
    finding = found("KER104", program(PLAIN))
    assert finding.gain_ns == pytest.approx(1_000_000 * (1 - 67 / 494.7))
    assert title("KER104", finding) == (
        "Matrix kernels that take 91 % of the computing time (1.00 ms per step) run on the plain FP32 units; the "
        "tensor cores stay idle."
    )


def test_what_bf16_would_take_is_said_beside_it() -> None:
    """1 ms at 67 TFLOP/s is 135 us in TF32 (494.7) and 68 us in bf16 (989)."""
    said = [str(block) for block in found("KER104", program(PLAIN)).evidence if isinstance(block, TextBlock)]
    assert len(said) == 1
    assert "take about 135.4 us in TF32, which is what the gain says, and 67.7 us in bf16" in said[0]


def test_xmma_with_tensor_cores_is_clear() -> None:
    assert cleared("KER104", program(TENSOR))


def test_fires_from_five_percent_of_the_computing_time() -> None:
    assert found("KER104", program(PLAIN, duration=60, other=940))
    assert cleared("KER104", program(PLAIN, duration=40, other=960))


def test_kernels_below_ten_microseconds_are_left_alone() -> None:
    assert cleared("KER104", program(PLAIN, duration=9, other=1))
    assert found("KER104", program(PLAIN, duration=11, other=1))


@pytest.mark.parametrize(
    ("kernel", "types"), [("sm80_xmma_gemm_f64f64_ffma", "float"), (PLAIN, "double"), ("gemv2T_kernel_val", "float")]
)
def test_double_precision_and_products_with_a_vector_are_silent(kernel: str, types: str) -> None:
    assert cleared("KER104", program(kernel, types=types))


def test_old_devices_and_other_vendors_are_not_judged() -> None:
    old = H100 | {"name": "Tesla P100", "computeMajor": 6, "numSms": 56}
    amd = H100 | {"name": "AMD Instinct MI300X", "warpSize": 64, "numSms": 304}
    for device in (old, amd):
        assert skipped("KER104", program(PLAIN, device=device))


def test_an_unknown_card_has_no_peak_but_still_a_bound() -> None:
    finding = found("KER104", program(PLAIN, device=H100 | {"name": "NVIDIA H900"}))
    assert finding.confidence == "low"
    assert 0 < finding.gain_ns < 1_000_000


def test_cards_whose_tensor_cores_know_only_fp16_are_not_told_to_use_tf32() -> None:
    volta = {**H100, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0}
    fix = found("KER104", program(PLAIN, device=volta)).fix
    assert fix is not None
    assert "fp16" in fix
    assert found("KER104", program(PLAIN)).fix is None, "the rule's own advice holds from 8.0 on"
