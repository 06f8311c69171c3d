from __future__ import annotations

import pytest

from lanewise.diagnose.rules.compile.nothing_to_fuse import fused_operators
from tests.diagnose.outcomes import cleared, needed, skipped
from tests.support.builder import TraceBuilder


def run(*kernels: str) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("Torch-Compiled Region: 0/0"), b.op("## Call CompiledFxGraph f ##"):
            for kernel in kernels:
                b.launch(kernel)
    return b


def test_single_operators_need_the_eager_run_to_compare_with() -> None:
    assert "eagerly" in needed("CMP105", run("nvjet_h_bz_TNN", "triton_poi_fused_gelu_0", "nvjet_h_bz_TNN").build())


def test_a_kernel_that_covers_two_operators_is_fusion() -> None:
    assert "mul and sin" in cleared("CMP105", run("triton_poi_fused_mul_sin_0").build())


def test_an_addition_folded_into_a_product_is_fusion() -> None:
    assert "folded" in cleared("CMP105", run("nvjet_h_badd_NNT").build())


def test_nothing_compiled() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("CMP105", b.build())


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [
        ("triton_poi_fused_gelu_0", ["gelu"]),
        ("triton_poi_fused__unsafe_view_gelu_mul_0", ["gelu", "mul"]),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", ["add", "mean", "mul", "pow", "rsqrt"]),
        ("triton_per_fused_native_layer_norm_3", ["native_layer_norm"]),
        ("triton_poi_fused__to_copy_view_12", []),
        ("nvjet_sm90_h_bz_NNT", []),
    ],
)
def test_names_list_what_was_fused(kernel: str, operators: list[str]) -> None:
    assert fused_operators(kernel) == operators
