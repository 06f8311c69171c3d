"""Kernel names that fit a table row."""

from __future__ import annotations

import pytest

from lanewise.measure.kernel_names import short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, at::native::"
            "Copy<c10::BFloat16, c10::BFloat16> >(at::native::(anonymous namespace)::TensorListMetadata<2>)",
            "multi_tensor_apply_kernel<UnaryOpFunctor>",
        ),
        (
            "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(int, float const*)",
            "max_pool_forward_nchw",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 4, true, false>(float*, float const*)",
            "softmax_warp_forward",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
            "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"),
    ],
)
def test_names_lose_templates_and_arguments_but_not_themselves(name: str, short: str) -> None:
    assert short_name(name) == short
