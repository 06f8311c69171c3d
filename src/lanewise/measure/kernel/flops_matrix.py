"""FLOPs and bytes of matrix products, convolutions and attention, from the recorded shapes.

The counts are those of torch's `FlopCounterMode` (a test compares them), with two exceptions that describe what the
device does: the executed part of causal attention is half, and the weight gradient of a grouped convolution counts each
group's own channels only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from lanewise.measure.kernel.work import Formulas, Work
from lanewise.measure.signatures import DTYPE_BYTES, Signature, Tensor

__all__ = ["FORMULAS"]

FORMULAS = Formulas()


# -- matrix products -------------------------------------------------------------------------------------------------


def _product(left: Tensor | None, right: Tensor | None, added: Tensor | None = None, *, out: str = "") -> Work | None:
    """`left @ right (+ added)` for two-dimensional operands, or batches of them."""
    if left is None or right is None or len(left.shape) < 2 or len(right.shape) < 2:
        return None
    *batch, m, k = left.shape
    if right.shape[-2] != k:
        return None
    n, b = right.shape[-1], math.prod(batch)
    written = b * m * n * (DTYPE_BYTES.get(out, 0) or left.itemsize)
    read = left.bytes + right.bytes + (added.bytes if added else 0)
    return Work("matmul", 2.0 * b * m * n * k, read, written, left.dtype, rows=m)


@FORMULAS.of("aten::mm", "aten::bmm", "aten::_int_mm")
def _mm(call: Signature) -> Work | None:
    return _product(call.tensor(0), call.tensor(1))


@FORMULAS.of(
    "aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::addbmm", "aten::_addmm_activation"
)
def _addmm(call: Signature) -> Work | None:
    return _product(call.tensor(1), call.tensor(2), call.tensor(0))


@FORMULAS.of("aten::_scaled_mm")
def _scaled_mm(call: Signature) -> Work | None:
    # The output type is an argument that the trace does not spell out: bf16 is what callers ask for.
    return _product(call.tensor(0), call.tensor(1), out="c10::BFloat16")


@FORMULAS.of("aten::linear")
def _linear(call: Signature) -> Work | None:
    rows, weight, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    if rows is None or weight is None or not rows.shape or len(weight.shape) != 2:
        return None
    k = rows.shape[-1]
    m = rows.numel // max(1, k)
    flat = Tensor((m, k), rows.dtype)
    return _product(flat, Tensor(weight.shape[::-1], weight.dtype), bias)


@FORMULAS.of("aten::matmul")
def _matmul(call: Signature) -> Work | None:
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or not left.shape or not right.shape:
        return None
    if len(left.shape) == 1:
        left = Tensor((1, *left.shape), left.dtype)
    if len(right.shape) == 1:
        right = Tensor((*right.shape, 1), right.dtype)
    if left.shape[-1] != right.shape[-2]:
        return None
    if len(right.shape) == 2:
        k = left.shape[-1]
        return _product(Tensor((left.numel // max(1, k), k), left.dtype), right)
    heads = [Tensor(tensor.shape[:-2], tensor.dtype) for tensor in (left, right)]
    batch = _broadcast_shape(heads[0].shape, heads[1].shape)
    if batch is None:
        return None
    b, (m, k), n = math.prod(batch), left.shape[-2:], right.shape[-1]
    return Work("matmul", 2.0 * b * m * n * k, left.bytes + right.bytes, b * m * n * left.itemsize, left.dtype, rows=m)


@FORMULAS.of("aten::mv", "aten::addmv", "aten::addmv_", "aten::dot", "aten::vdot")
def _vector(call: Signature) -> Work | None:
    tensors = [tensor for tensor in call.tensors if tensor.shape]
    matrix = max(tensors, key=lambda tensor: tensor.numel, default=None)
    if matrix is None:
        return None
    written = matrix.shape[0] if len(matrix.shape) == 2 else 1
    read = sum(tensor.bytes for tensor in tensors)
    return Work("matmul", 2.0 * matrix.numel, read, written * matrix.itemsize, matrix.dtype, rows=1)


def _broadcast_shape(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...] | None:
    shape: list[int] = []
    for at in range(1, max(len(left), len(right)) + 1):
        a = left[-at] if at <= len(left) else 1
        b = right[-at] if at <= len(right) else 1
        if a != b and 1 not in (a, b):
            return None
        shape.insert(0, max(a, b))
    return tuple(shape)


# -- convolutions ----------------------------------------------------------------------------------------------------


def _convolution(
    call: Signature,
    *,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    transposed: bool = False,
    output_padding: int = -1,
    bias: int = -1,
) -> Work | None:
    """A forward convolution whose options are the concrete values at the given positions."""
    image, weight = call.tensor(0), call.tensor(1)
    if image is None or weight is None or len(weight.shape) < 3 or len(image.shape) != len(weight.shape):
        return None
    space = len(weight.shape) - 2
    options = [_per_dimension(call, at, space) for at in (stride, padding, dilation)]
    if any(option is None for option in options):
        return None
    steps, pads, spread = (option or () for option in options)
    if min(*steps, *spread) < 1 or min(pads) < 0:
        return None
    g = call.whole(groups, 1)
    kernel, area = weight.shape[2:], image.shape[2:]
    if transposed:
        extra = _per_dimension(call, output_padding, space) or (0,) * space
        out = [
            (a - 1) * s - 2 * p + d * (k - 1) + 1 + e
            for a, s, p, d, k, e in zip(area, steps, pads, spread, kernel, extra, strict=True)
        ]
        channels = weight.shape[1] * g
        work = math.prod(area)
    else:
        out = [
            (a + 2 * p - d * (k - 1) - 1) // s + 1
            for a, s, p, d, k in zip(area, steps, pads, spread, kernel, strict=True)
        ]
        channels = weight.shape[0]
        work = math.prod(out)
    if min(out, default=0) <= 0:
        return None
    flops = 2.0 * image.shape[0] * work * weight.numel
    added = call.tensor(bias)
    read = image.bytes + weight.bytes + (added.bytes if added else 0)
    written = image.shape[0] * channels * math.prod(out) * image.itemsize
    return Work("convolution", flops, read, written, image.dtype)


def _per_dimension(call: Signature, position: int, count: int) -> tuple[int, ...] | None:
    values = call.whole_list(position)
    if values is None:
        return None
    return values * count if len(values) == 1 else values if len(values) == count else None


@FORMULAS.of("aten::cudnn_convolution")
def _cudnn(call: Signature) -> Work | None:
    return _convolution(call, padding=2, stride=3, dilation=4, groups=5)


@FORMULAS.of("aten::cudnn_convolution_relu")
def _cudnn_relu(call: Signature) -> Work | None:
    return _convolution(call, bias=2, stride=3, padding=4, dilation=5, groups=6)


@FORMULAS.of("aten::cudnn_convolution_transpose")
def _cudnn_transposed(call: Signature) -> Work | None:
    return _convolution(call, padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True)


@FORMULAS.of("aten::miopen_convolution", "aten::mkldnn_convolution")
def _miopen(call: Signature) -> Work | None:
    return _convolution(call, bias=2, padding=3, stride=4, dilation=5, groups=6)


@FORMULAS.of("aten::conv1d", "aten::conv2d", "aten::conv3d")
def _conv(call: Signature) -> Work | None:
    return _convolution(call, bias=2, stride=3, padding=4, dilation=5, groups=6)


@FORMULAS.of("aten::convolution", "aten::_convolution", "aten::convolution_overrideable")
def _general(call: Signature) -> Work | None:
    return _convolution(
        call, bias=2, stride=3, padding=4, dilation=5, transposed=call.value(6) == "True", output_padding=7, groups=8
    )


@FORMULAS.of("aten::_conv_depthwise2d", "aten::conv_depthwise3d")
def _depthwise(call: Signature) -> Work | None:
    # One group per input channel; the weight holds one channel per group, so its size already says the rest.
    return _convolution(call, bias=3, stride=4, padding=5, dilation=6, groups=-1)


@FORMULAS.of("aten::_slow_conv2d_forward", "aten::thnn_conv2d")
def _slow(call: Signature) -> Work | None:
    image, weight = call.tensor(0), call.tensor(1)
    if image is None or weight is None or len(image.shape) != 4:
        return None
    one = Signature((*call.inputs[:2], None, None, None), ("", "", call.value(4), call.value(5), "[1, 1]"))
    return _convolution(one, stride=2, padding=3, dilation=4, groups=-1)


@FORMULAS.of("aten::convolution_backward", "aten::convolution_backward_overrideable")
def _convolution_backward(call: Signature) -> Work | None:
    """Each gradient that is asked for costs one forward pass."""
    grad, image, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    mask = call.value(10)
    if grad is None or image is None or weight is None or len(weight.shape) < 3 or not mask.startswith("["):
        return None
    wanted = [part.strip() == "True" for part in mask.strip("[]").split(",")]
    area = image.shape[2:] if call.value(7) == "True" else grad.shape[2:]
    one = 2.0 * grad.shape[0] * math.prod(area) * weight.numel
    flops, read, written = 0.0, 0, 0
    if wanted[0]:
        flops, read, written = flops + one, read + grad.bytes + weight.bytes, written + image.numel * image.itemsize
    if len(wanted) > 1 and wanted[1]:
        flops, read, written = flops + one, read + grad.bytes + image.bytes, written + weight.numel * weight.itemsize
    return Work("convolution", flops, read, written, grad.dtype) if flops else None


# -- attention -------------------------------------------------------------------------------------------------------


def _attention(
    query: Tensor | None,
    key: Tensor | None,
    value: Tensor | None,
    *,
    heads_first: bool,
    causal: bool,
    backward: bool = False,
) -> Work | None:
    if query is None or key is None or value is None:
        return None
    if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        return None  # ragged batches: the lengths are in tensors, not in the trace
    if heads_first:
        batch, heads, queries, wide = query.shape
        keys = key.shape[2]
    else:
        batch, queries, heads, wide = query.shape
        keys = key.shape[1]
    pairs = 2.0 * batch * heads * queries * keys
    deep = value.shape[3]
    operands = query.bytes + key.bytes + value.bytes
    out = batch * heads * queries * deep * query.itemsize
    sums = batch * heads * queries * 4
    if backward:
        # Scores again, then four products: two of each width.
        flops = pairs * (3 * wide + 2 * deep)
        read, written = operands + 2 * out + sums, (query.numel + key.numel + value.numel) * query.itemsize
    else:
        flops, read, written = pairs * (wide + deep), operands, out + sums
    return Work("attention", flops, read, written, query.dtype, masked=0.5 if causal and queries == keys else 1.0)


# Name -> (position of the query, heads before the sequence, position of `is_causal` or of the mask type, backward).
_ATTENTION: dict[str, tuple[int, bool, int, bool]] = {
    "aten::scaled_dot_product_attention": (0, True, 5, False),
    "aten::_scaled_dot_product_flash_attention": (0, True, 4, False),
    "aten::_scaled_dot_product_efficient_attention": (0, True, 6, False),
    "aten::_scaled_dot_product_cudnn_attention": (0, True, 6, False),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (0, True, 4, False),
    "aten::_scaled_dot_product_fused_attention_overrideable": (0, True, 5, False),
    "aten::_flash_attention_forward": (0, False, 8, False),
    "aten::_efficient_attention_forward": (0, False, 9, False),
    "aten::_cudnn_attention_forward": (0, True, 10, False),
    "aten::_scaled_dot_product_flash_attention_backward": (1, True, 11, True),
    "aten::_scaled_dot_product_efficient_attention_backward": (1, True, 11, True),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, True, 14, True),
    "aten::_flash_attention_backward": (1, False, 11, True),
    "aten::_efficient_attention_backward": (1, False, 14, True),
    "aten::_cudnn_attention_backward": (1, True, 14, True),
}


def _fused_attention(call: Signature, *, query: int, heads_first: bool, mask: int, backward: bool) -> Work | None:
    operands = (call.tensor(query + at) for at in range(3))
    # Efficient attention says which mask by number: 0 none, 1 and 2 causal.
    causal = call.value(mask) in {"True", "1", "2"}
    return _attention(*operands, heads_first=heads_first, causal=causal, backward=backward)


for _name, (_query, _heads_first, _mask, _backward) in _ATTENTION.items():
    FORMULAS[_name] = partial(_fused_attention, query=_query, heads_first=_heads_first, mask=_mask, backward=_backward)
