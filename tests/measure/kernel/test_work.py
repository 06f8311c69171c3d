"""FLOPs and bytes of operators from their shapes, against arithmetic by hand."""

from __future__ import annotations

import pytest

from lanewise.measure.kernel.flops import work_of
from lanewise.measure.signatures import Argument, Signature, Tensor

BF16, FP32, INT64 = "c10::BFloat16", "float", "long int"


def t(*shape: int, dtype: str = BF16, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, strides)


def call(*inputs: Argument, concrete: dict[int, str] | None = None) -> Signature:
    values = [(concrete or {}).get(at, "") for at in range(max(len(inputs), *(concrete or {0: ""})) + 1)]
    padded = (*inputs, *(None,) * (len(values) - len(inputs)))
    return Signature(padded, tuple(values))


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "read", "written"),
    [
        ("aten::mm", call(t(4, 8), t(8, 16)), 2 * 4 * 8 * 16, 2 * (32 + 128), 2 * 64),
        ("aten::addmm", call(t(16), t(4, 8), t(8, 16)), 1024, 2 * (16 + 32 + 128), 128),
        ("aten::bmm", call(t(3, 4, 8), t(3, 8, 16)), 3 * 1024, 2 * 3 * (32 + 128), 2 * 3 * 64),
        ("aten::linear", call(t(2, 5, 8), t(16, 8), t(16)), 2 * 10 * 8 * 16, 2 * (80 + 128 + 16), 2 * 160),
        ("aten::matmul", call(t(2, 1, 4, 8), t(3, 8, 16)), 6 * 1024, 2 * (64 + 384), 2 * 6 * 64),
        (
            "aten::_scaled_mm",
            call(t(4, 8, dtype="c10::Float8_e4m3fn"), t(8, 16, dtype="c10::Float8_e4m3fn")),
            1024,
            32 + 128,
            2 * 64,
        ),
        ("aten::mv", call(t(4, 8), t(8)), 64, 2 * 40, 8),
        # An expanded bias is read once, not once per row.
        (
            "aten::baddbmm",
            call(t(3, 4, 16, strides=(0, 0, 1)), t(3, 4, 8), t(3, 8, 16)),
            3 * 1024,
            2 * (16 + 96 + 384),
            2 * 192,
        ),
        (
            "aten::cudnn_convolution",
            call(t(2, 8, 10, 10), t(16, 4, 3, 3), concrete={2: "[1, 1]", 3: "[2, 2]", 4: "[1, 1]", 5: "2"}),
            2 * 2 * 16 * 25 * 36,
            2 * (1600 + 576),
            2 * 2 * 16 * 25,
        ),
        (
            "aten::convolution_backward",
            call(t(2, 16, 8, 8), t(2, 8, 10, 10), t(16, 8, 3, 3), concrete={7: "False", 10: "[True, True, True]"}),
            2 * 2 * 2 * 64 * 1152,
            2 * (2 * 2048 + 1152 + 1600),
            2 * (1600 + 1152),
        ),
        (
            "aten::_flash_attention_forward",
            call(t(2, 32, 4, 16), t(2, 32, 4, 16), t(2, 32, 4, 16)),
            2 * 2 * 2 * 4 * 32 * 32 * 16,
            3 * 2 * 4096,
            2 * 4096 + 4 * 256,
        ),
        ("aten::gelu", call(t(4, 8)), 320, 64, 64),
        ("aten::mul", call(t(4, 8), t(8, dtype=FP32)), 32, 64 + 32, 128),
        ("aten::mul", call(t(4, 8), t(dtype=FP32)), 32, 64 + 4, 64),
        ("aten::add_", call(t(4, 8, dtype=FP32), t(8, dtype=FP32)), 32, 128 + 32, 128),
        ("aten::eq", call(t(4, 8), t(4, 8)), 32, 128, 32),
        ("aten::fill_", call(t(4, 8)), 32, 0, 64),
        ("aten::copy_", call(t(4, 8), t(4, 8, dtype=FP32)), 0, 128, 64),
        ("aten::cat", call((t(4, 8), t(4, 8))), 0, 128, 128),
        ("aten::sum", call(t(4, 8, dtype=FP32), concrete={1: "[0]"}), 32, 128, 32),
        ("aten::sum", call(t(4, 8, dtype=FP32)), 32, 128, 4),
        ("aten::argmax", call(t(4, 8, dtype=FP32), concrete={1: "-1"}), 32, 128, 4 * 8),
        ("aten::_softmax", call(t(4, 8)), 160, 64, 64),
        ("aten::_softmax_backward_data", call(t(4, 8), t(4, 8)), 128, 128, 64),
        ("aten::native_layer_norm", call(t(4, 8), None, t(8), t(8)), 8 * 32, 64 + 32, 64 + 32),
        (
            "aten::native_batch_norm",
            call(t(4, 8, 5, 5), t(8), t(8), t(8), t(8), concrete={5: "True"}),
            8 * 800,
            2 * 1600 + 64,
            1600,
        ),
        (
            "aten::native_batch_norm",
            call(t(4, 8, 5, 5), t(8), t(8), t(8), t(8), concrete={5: "False"}),
            2 * 800,
            1600 + 64,
            1600,
        ),
        ("aten::embedding", call(t(100, 8), t(6, dtype=INT64)), 0, 48 + 96, 96),
        ("aten::index_select", call(t(100, 8), None, t(6, dtype=INT64), concrete={1: "0"}), 0, 48 + 96, 96),
        ("aten::native_dropout", call(t(4, 8)), 64, 64, 96),
        ("aten::_foreach_add_", call((t(4), t(6)), (t(4), t(6))), 10, 40, 20),
        ("aten::_foreach_copy_", call((t(4), t(6)), (t(4), t(6))), 0, 20, 20),
        (
            "aten::_fused_adamw_",
            call((t(4, dtype=FP32),), (t(4, dtype=FP32),), (t(4, dtype=FP32),), (t(4, dtype=FP32),)),
            56,
            64,
            48,
        ),
        ("triton_poi_fused_gelu_0", call(t(4, 8)), None, 64, 64),
        ("triton_poi_fused_mul_silu_2", call(t(4, 8), t(4, 8)), None, 64, 64),
    ],
)
def test_counts(name: str, arguments: Signature, flops: float | None, read: int, written: int) -> None:
    work = work_of(name, arguments)
    assert work is not None
    assert (work.flops, work.read, work.written) == (flops, read, written)


def test_a_causal_mask_halves_what_is_executed_but_not_the_count() -> None:
    shapes = (t(2, 4, 32, 16),) * 3
    work = work_of("aten::_scaled_dot_product_flash_attention", call(*shapes, concrete={4: "True"}))
    assert work is not None
    assert work.executed == work.flops / 2 if work.flops else False


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::mm", call(t(4, 8), t(9, 16))),  # shapes that do not fit
        ("aten::mm", call(t(4, 8))),
        ("aten::mul", call(t(4, 8), t(4, 8, dtype="mystery"))),
        ("aten::cat", call((t(4, dtype=""),))),  # a list without a type
        ("aten::cudnn_convolution", call(t(2, 8, 10, 10), t(16, 8, 3, 3))),  # options not recorded
        ("aten::_flash_attention_forward", call(t(320, 4, 16), t(320, 4, 16), t(320, 4, 16))),  # ragged batch
        ("aten::sort", call(t(4, 8))),
        ("mine::op", call(t(4, 8))),
    ],
)
def test_what_is_not_known_is_unknown_and_never_zero(name: str, arguments: Signature) -> None:
    assert work_of(name, arguments) is None
    assert work_of(name, None) is None


def test_a_generated_kernel_that_only_writes_is_not_counted_as_reading() -> None:
    work = work_of("triton_poi_fused_zeros_0", call(t(4, 8)))
    assert work is not None
    assert (work.read, work.written, work.exact) == (0, 64, False)
