from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder

POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def run(fallback: float, fused: float, *, kernel: str = POINTWISE, inside: bool = True) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("Torch-Compiled Region: 0/0"):
            with b.op("## Call CompiledFxGraph f ##"):
                b.launch("triton_poi_fused_mul_sin_0", duration=fused)
                if inside:
                    with b.op("aten::index_put_"):
                        b.launch(kernel, duration=fallback)
            if not inside:
                with b.op("aten::index_put_"):
                    b.launch(kernel, duration=fallback)
    return b


def test_an_eager_kernel_inside_a_compiled_graph() -> None:
    result = found("CMP107", run(50, 150).build())
    assert title("CMP107", result) == (
        "Compiled graphs hold 1 eager kernel per step besides what was fused (50.0 us, 25 % of the graphs' device "
        "time), most of it aten::index_put_."
    )
    assert result.gain_ns == pytest.approx(50_000)
    assert result.evidence[1].rows == [{"kernel": "triton_poi_fused_mul_sin_0"}]


def test_the_threshold_is_one_tenth() -> None:
    cleared("CMP107", run(10, 90).build())
    found("CMP107", run(10.2, 90).build())


def test_library_kernels_stay() -> None:
    cleared("CMP107", run(150, 50, kernel="nvjet_sm90_h_bz_NNT").build())
    cleared("CMP107", run(150, 50, kernel="ncclDevKernel_AllReduce").build())


def test_outside_the_graph_is_another_matter() -> None:
    cleared("CMP107", run(150, 50, inside=False).build())


def test_no_compiled_graph() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("CMP107", b.build())
