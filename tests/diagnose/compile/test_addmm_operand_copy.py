"""CMP106: the matrix that addmm adds is copied first."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder

GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_badd_NNT"
PLAIN = "sm80_xmma_gemm_f32f32_tf32f32_f32"


def addmm(
    kernel: str = GEMM,
    *,
    size: int = 64 * 64 * 2,
    shapes: bool = False,
    memset: bool = False,
    gemm: float = 100,
    between: bool = False,
) -> Trace:
    b = TraceBuilder()
    dims = [[64, 64], [64, 32], [32, 64]] if shapes else None
    types = ["c10::BFloat16"] * 3 if shapes else None
    for _ in range(4):
        with b.step(), b.op("aten::addmm", dims=dims, types=types):
            b.copy("DtoD", size=size, duration=20)
            if memset:
                b.memset()
            if between:
                b.launch("vectorized_elementwise_kernel", duration=1)
            b.launch(kernel, duration=gemm)
    return b.build()


def test_device_bound_it_costs_the_copy() -> None:
    finding = found("CMP106", addmm())
    assert finding.gain_ns == pytest.approx(20_000)
    assert title("CMP106", finding).startswith("1 copy per step: the matrix that `addmm` adds is copied")
    assert finding.confidence == "high"


def test_a_memset_between_copy_and_multiplication_is_part_of_it() -> None:
    assert found("CMP106", addmm(memset=True))


def test_host_bound_it_costs_the_call_at_most() -> None:
    finding = found("CMP106", addmm(gemm=1), unprofiled_us=10_000)
    assert finding.gain_ns == pytest.approx(12_000)


def test_shapes_prove_the_pair_without_the_name() -> None:
    assert found("CMP106", addmm(PLAIN, shapes=True)).confidence == "high"
    assert found("CMP106", addmm(PLAIN)).confidence == "medium"


def test_a_copy_of_another_size_is_not_the_operand() -> None:
    assert cleared("CMP106", addmm(PLAIN, shapes=True, size=64 * 64 * 2 + 2))
    assert found("CMP106", addmm(PLAIN, shapes=True, size=64 * 64 * 2))


def test_something_between_breaks_the_pair() -> None:
    assert cleared("CMP106", addmm(between=True))


def test_copy_and_multiplication_of_different_operators_are_no_pair() -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            with b.op("aten::clone"):
                b.copy("DtoD", duration=20)
            with b.op("aten::addmm"):
                b.launch(GEMM, duration=100)
    assert cleared("CMP106", b.build())


@pytest.mark.parametrize(("kernel", "fires"), [(GEMM, True), (PLAIN, False)])
def test_inside_a_graph_only_the_kernels_name_proves_it(kernel: str, fires: bool) -> None:
    b = TraceBuilder()
    for _ in range(4):
        with b.step():
            _, copy, _ = b.launch(["Memcpy DtoD (Device -> Device)", kernel], duration=50)
            b.as_copy(copy, "DtoD", size=8192)
    if fires:
        assert found("CMP106", b.build())
    else:
        assert cleared("CMP106", b.build())


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::addmm"):
        pass
    assert skipped("CMP106", b.build())
