"""KER105: dimensions that keep the fast kernels away."""

from __future__ import annotations

from typing import Any

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, needed
from tests.support.builder import TraceBuilder


def program(
    n: int,
    *,
    dtype: str = "c10::BFloat16",
    kernel: str = "sm80_xmma_gemm_bf16",
    duration: float = 1000,
    other: float = 10,
    shapes: bool = True,
    strides: Any = None,
    m: int = 4096,
) -> Trace:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op(
                "aten::mm",
                dims=[[m, 4096], [4096, n]] if shapes else None,
                types=[dtype] * 2 if shapes else None,
                strides=strides,
            ):
                b.launch(kernel, duration=duration)
            with b.op("aten::other"):
                b.launch("other", duration=other)
    return b.build()


def test_a_vocabulary_of_odd_size() -> None:
    finding = found("KER105", program(50257, duration=5_000))
    least = 2 * 4096 * 4096 * 50257 / (0.7 * 989.4e12) * 1e9
    assert finding.gain_ns == pytest.approx(5_000_000 - least)


@pytest.mark.parametrize("n", [4096, 4104])
def test_multiples_of_eight_are_clear(n: int) -> None:
    assert cleared("KER105", program(n))


def test_fp8_needs_sixteen() -> None:
    assert cleared("KER105", program(4112, dtype="c10::Float8_e4m3fn"))
    assert found("KER105", program(4104, dtype="c10::Float8_e4m3fn")).values["multiple"].value == "16"


def test_the_row_length_in_memory_counts_not_the_shape() -> None:
    # Transposed weight: its rows are 4096 long in memory, whatever the number of columns.
    assert cleared("KER105", program(4095, strides=[[4096, 1], [1, 4096]]))
    assert found("KER105", program(4096, strides=[[4096, 1], [4097, 1]]))


def test_fp32_and_tiny_dimensions_are_silent() -> None:
    assert cleared("KER105", program(50257, dtype="float", kernel="sgemm_align1"))
    assert cleared("KER105", program(7))


def test_the_kernels_name_proves_it_too() -> None:
    assert found("KER105", program(4096, kernel="cutlass_80_tensorop_bf16_s16816gemm_bf16_align2"))
    assert cleared("KER105", program(4096, kernel="cutlass_80_tensorop_bf16_s16816gemm_bf16_align8"))


def test_fires_from_five_percent_of_the_computing_time() -> None:
    assert found("KER105", program(4095, other=18_500))
    assert cleared("KER105", program(4095, other=19_500))


def test_without_shapes_it_says_what_to_record() -> None:
    assert needed("KER105", program(4095, shapes=False))
