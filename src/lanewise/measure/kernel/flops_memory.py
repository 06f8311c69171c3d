"""FLOPs and bytes of everything that is not a matrix product: pointwise, reductions, norms, copies, lookups.

FLOPs are rough (1 per simple element, 10 per transcendental one): these operators are limited by memory, and the bytes
decide. Bytes are those of one pass over distinct storage.
"""

from __future__ import annotations

import math
from functools import partial

from lanewise.measure.kernel.work import Formulas, Work, broadcast, promoted
from lanewise.measure.signatures import DTYPE_BYTES, Signature, Tensor, whole_of

__all__ = ["FORMULAS"]

FORMULAS = Formulas()


# -- pointwise -------------------------------------------------------------------------------------------------------

# FLOPs per element -> operators. Number of tensors that a call reads at most.
_POINTWISE: dict[tuple[int, int], str] = {
    (1, 1): "neg abs sign square relu relu_ clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ hardtanh hardtanh_ "
    "threshold threshold_ leaky_relu leaky_relu_ reciprocal floor ceil round trunc bitwise_not logical_not "
    "isnan isfinite isinf triu tril frac",
    (10, 1): "exp exp2 expm1 log log2 log10 log1p sqrt sqrt_ rsqrt rsqrt_ sin cos tan tanh tanh_ sigmoid sigmoid_ silu "
    "silu_ gelu erf erfc erfinv softplus elu elu_ celu selu mish hardswish hardswish_ hardsigmoid log_sigmoid "
    "exp_ log_ neg_ sin_ cos_ logit acos asin atan polar",
    (1, 2): "add add_ sub sub_ rsub mul mul_ div div_ maximum minimum fmax fmin eq ne lt le gt ge bitwise_and "
    "bitwise_or bitwise_xor logical_and logical_or logical_xor masked_fill masked_fill_ threshold_backward "
    "hardtanh_backward leaky_relu_backward fmod remainder floor_divide floor_divide_ bitwise_and_ bitwise_or_ "
    "ge_ gt_ le_ lt_ eq_ ne_ mse_loss",
    (10, 2): "pow pow_ float_power silu_backward gelu_backward sigmoid_backward tanh_backward softplus_backward "
    "elu_backward mish_backward hardswish_backward atan2 hypot xlogy",
    (2, 3): "lerp lerp_ addcmul addcmul_ addcdiv addcdiv_ where native_dropout_backward smooth_l1_loss",
}

_COMPARISONS = {
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "isnan",
    "isfinite",
    "isinf",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
}


def _pointwise(call: Signature, *, name: str, flops: int, arity: int) -> Work | None:
    tensors = call.tensors[:arity]
    if not tensors or not all(tensor.itemsize for tensor in tensors):
        return None
    in_place = name.endswith("_")
    elements = tensors[0].numel if in_place else broadcast(*tensors)
    computed = promoted(*tensors)
    stored = "bool" if name in _COMPARISONS else tensors[0].dtype if in_place else computed
    read = sum(tensor.bytes for tensor in tensors)
    return Work("pointwise", float(flops * elements), read, elements * DTYPE_BYTES.get(stored, 0), computed)


for (_flops, _arity), _names in _POINTWISE.items():
    for _name in _names.split():
        FORMULAS[f"aten::{_name}"] = partial(_pointwise, name=_name, flops=_flops, arity=_arity)


@FORMULAS.of(
    "aten::fill_",
    "aten::zero_",
    "aten::normal_",
    "aten::uniform_",
    "aten::random_",
    "aten::bernoulli_",
    "aten::exponential_",
)
def _fill(call: Signature) -> Work | None:
    target = call.tensor(0)
    return Work("pointwise", float(target.numel), 0, target.numel * target.itemsize, target.dtype) if target else None


@FORMULAS.of("aten::native_dropout")
def _dropout(call: Signature) -> Work | None:
    source = call.tensor(0)
    if source is None:
        return None
    written = source.numel * (source.itemsize + 1)
    return Work("pointwise", 2.0 * source.numel, source.bytes, written, source.dtype)


# -- copies ----------------------------------------------------------------------------------------------------------


@FORMULAS.of("aten::copy_")
def _copy(call: Signature) -> Work | None:
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None:
        return None
    return Work("copy", 0.0, source.bytes, target.numel * target.itemsize, source.dtype)


@FORMULAS.of("aten::clone", "aten::contiguous", "aten::_to_copy", "aten::repeat")
def _clone(call: Signature) -> Work | None:
    source = call.tensor(0)
    if source is None:
        return None
    return Work("copy", 0.0, source.bytes, source.numel * source.itemsize, source.dtype, exact=False)


@FORMULAS.of("aten::cat", "aten::stack", "aten::_chunk_cat")
def _cat(call: Signature) -> Work | None:
    parts = call.inputs[0] if call.inputs else None
    if not isinstance(parts, tuple) or isinstance(parts, Tensor) or not all(part.itemsize for part in parts):
        return None
    read = sum(part.bytes for part in parts)
    written = sum(part.numel * part.itemsize for part in parts)
    return Work("copy", 0.0, read, written, parts[0].dtype) if parts else None


@FORMULAS.of("aten::split_with_sizes_copy")
def _split(call: Signature) -> Work | None:
    source = call.tensor(0)
    return Work("copy", 0.0, source.bytes, source.numel * source.itemsize, source.dtype) if source else None


# -- reductions, softmax, norms ----------------------------------------------------------------------------------------


def _reduced(source: Tensor, call: Signature, position: int) -> int:
    """Elements of the result of reducing over the dimensions at a position; all of them if none is given."""
    one = whole_of(call.value(position))
    dims = call.whole_list(position) or (None if one is None else (one,))
    rank = len(source.shape)
    if dims is None or not all(-rank <= dim < rank for dim in dims):
        return 1
    reduced = {dim % rank for dim in dims}
    return math.prod(size for at, size in enumerate(source.shape) if at not in reduced)


def _reduction(call: Signature, *, position: int, out: str) -> Work | None:
    source = call.tensor(0)
    if source is None or not source.itemsize:
        return None
    size = DTYPE_BYTES.get(out, source.itemsize)
    return Work("reduction", float(source.numel), source.bytes, _reduced(source, call, position) * size, source.dtype)


for _names, _at, _out in (
    ("sum mean amax amin prod nansum var std var_mean std_mean logsumexp", 1, ""),
    ("norm linalg_vector_norm", 2, ""),
    ("max min median", 1, ""),
    ("argmax argmin count_nonzero", 1, "long int"),
    ("any all", 1, "bool"),
):
    for _name in _names.split():
        FORMULAS[f"aten::{_name}"] = partial(_reduction, position=_at, out=_out)


@FORMULAS.of("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax", "aten::_masked_softmax")
def _softmax(call: Signature) -> Work | None:
    source = call.tensor(0)
    if source is None:
        return None
    return Work("softmax", 5.0 * source.numel, source.bytes, source.numel * source.itemsize, source.dtype)


@FORMULAS.of("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def _softmax_backward(call: Signature) -> Work | None:
    grad, result = call.tensor(0), call.tensor(1)
    if grad is None or result is None:
        return None
    return Work("softmax", 4.0 * grad.numel, grad.bytes + result.bytes, grad.numel * grad.itemsize, grad.dtype)


def _norm(call: Signature, flops: int, reads: int, source: int = 0, grad: int = -1, per_row: int = 8) -> Work | None:
    """A normalisation: `reads` passes over each big operand, the small ones once, one result of the same size."""
    wide = call.tensor(source)
    if wide is None or not wide.itemsize:
        return None
    big = [tensor for tensor in (wide, call.tensor(grad) if grad >= 0 else None) if tensor]
    small = sum(tensor.bytes for tensor in call.tensors if tensor.numel * 2 <= wide.numel)
    rows = wide.numel // max(1, wide.shape[-1]) if wide.shape else 1
    read = reads * sum(tensor.bytes for tensor in big) + small
    written = wide.numel * wide.itemsize + rows * per_row
    return Work("normalisation", float(flops * wide.numel), read, written, wide.dtype)


@FORMULAS.of("aten::native_layer_norm")
def _layer_norm(call: Signature) -> Work | None:
    return _norm(call, 8, 1)


@FORMULAS.of("aten::native_layer_norm_backward")
def _layer_norm_backward(call: Signature) -> Work | None:
    return _norm(call, 14, 1, source=1, grad=0, per_row=0)


@FORMULAS.of("aten::rms_norm", "aten::_fused_rms_norm")
def _rms_norm(call: Signature) -> Work | None:
    return _norm(call, 5, 1, per_row=4)


@FORMULAS.of("aten::_fused_rms_norm_backward")
def _rms_norm_backward(call: Signature) -> Work | None:
    return _norm(call, 10, 1, source=1, grad=0, per_row=0)


@FORMULAS.of("aten::cudnn_batch_norm", "aten::native_batch_norm", "aten::miopen_batch_norm")
def _batch_norm(call: Signature) -> Work | None:
    training = call.value(5) == "True"
    return _norm(call, 8 if training else 2, 2 if training else 1, per_row=0)


@FORMULAS.of("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward")
def _cudnn_batch_norm_backward(call: Signature) -> Work | None:
    return _norm(call, 12, 2, source=0, grad=1, per_row=0)


@FORMULAS.of("aten::native_batch_norm_backward")
def _native_batch_norm_backward(call: Signature) -> Work | None:
    return _norm(call, 12, 2, source=1, grad=0, per_row=0)


@FORMULAS.of("aten::native_group_norm")
def _group_norm(call: Signature) -> Work | None:
    return _norm(call, 8, 1, per_row=0)


# -- lookups, pooling --------------------------------------------------------------------------------------------------


@FORMULAS.of("aten::embedding")
def _embedding(call: Signature) -> Work | None:
    table, index = call.tensor(0), call.tensor(1)
    if table is None or index is None or not table.shape:
        return None
    moved = index.numel * table.shape[-1] * table.itemsize
    return Work("embedding", 0.0, index.bytes + moved, moved, table.dtype)


@FORMULAS.of("aten::embedding_dense_backward")
def _embedding_backward(call: Signature) -> Work | None:
    grad, index = call.tensor(0), call.tensor(1)
    rows = call.whole(2, 0)
    if grad is None or index is None or rows < 1 or not grad.shape:
        return None
    written = rows * grad.shape[-1] * grad.itemsize
    return Work("embedding", float(grad.numel), grad.bytes + index.bytes, written, grad.dtype, exact=False)


@FORMULAS.of("aten::index_select")
def _index_select(call: Signature) -> Work | None:
    source, index = call.tensor(0), call.tensor(2)
    dim = call.whole(1, 99)
    if source is None or index is None or not -len(source.shape) <= dim < len(source.shape) or not source.shape[dim]:
        return None
    moved = source.numel // source.shape[dim] * index.numel * source.itemsize
    return Work("embedding", 0.0, moved + index.bytes, moved, source.dtype)


@FORMULAS.of("aten::gather")
def _gather(call: Signature) -> Work | None:
    source, index = call.tensor(0), call.tensor(2)
    if source is None or index is None:
        return None
    moved = index.numel * source.itemsize
    return Work("embedding", 0.0, moved + index.bytes, moved, source.dtype)


@FORMULAS.of("aten::scatter_add_", "aten::index_add_", "aten::scatter_")
def _scatter(call: Signature) -> Work | None:
    target, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if target is None or index is None or source is None:
        return None
    moved = source.bytes
    return Work("embedding", float(source.numel), index.bytes + 2 * moved, moved, target.dtype, exact=False)


@FORMULAS.of("aten::max_pool2d_with_indices")
def _max_pool(call: Signature) -> Work | None:
    source, kernel = call.tensor(0), call.whole_list(1)
    stride, padding = call.whole_list(2) or kernel, call.whole_list(3)
    if source is None or kernel is None or stride is None or padding is None or len(source.shape) < 3:
        return None
    kernel, stride, padding = (pair * 2 if len(pair) == 1 else pair for pair in (kernel, stride, padding))
    if any(len(pair) != 2 for pair in (kernel, stride, padding)) or min(*stride, *kernel) < 1:
        return None
    sizes = zip(source.shape[-2:], kernel, stride, padding, strict=True)
    area = [(size + 2 * p - k) // s + 1 for size, k, s, p in sizes]
    elements = math.prod(source.shape[:-2]) * math.prod(max(0, size) for size in area)
    written = elements * (source.itemsize + 8)
    return Work("pointwise", float(elements * math.prod(kernel)), source.bytes, written, source.dtype)


@FORMULAS.of("aten::max_pool2d_with_indices_backward")
def _max_pool_backward(call: Signature) -> Work | None:
    grad, source = call.tensor(0), call.tensor(1)
    if grad is None or source is None:
        return None
    return Work("pointwise", float(grad.numel), grad.bytes + grad.numel * 8, source.numel * source.itemsize, grad.dtype)


# -- lists of tensors --------------------------------------------------------------------------------------------------


def _lists(call: Signature) -> list[tuple[Tensor, ...]]:
    return [value for value in call.inputs if isinstance(value, tuple) and not isinstance(value, Tensor) and value]


def _foreach(call: Signature, *, flops: int) -> Work | None:
    """An operation over lists of tensors; a copy (no FLOPs) does not read what it overwrites."""
    lists = _lists(call)
    if not lists or not all(tensor.itemsize for tensors in lists for tensor in tensors):
        return None
    sizes = [sum(tensor.numel * tensor.itemsize for tensor in tensors) for tensors in lists]
    elements = sum(tensor.numel for tensor in lists[0])
    read = sum(sizes) if flops else sum(sizes[1:])
    return Work("pointwise" if flops else "copy", float(flops * elements), read, sizes[0], lists[0][0].dtype)


for _flops, _names in (
    (0, "copy_"),
    (1, "add add_ sub sub_ mul mul_ div div_ neg neg_ addcmul_ addcdiv_ lerp_ maximum_ clamp_min_"),
    (10, "sqrt sqrt_ pow reciprocal exp"),
):
    for _name in _names.split():
        FORMULAS[f"aten::_foreach_{_name}"] = partial(_foreach, flops=_flops)


@FORMULAS.of("aten::_fused_adamw_", "aten::_fused_adam_")
def _adam(call: Signature) -> Work | None:
    """Reads parameter, gradient and two moments, writes all but the gradient."""
    lists = _lists(call)
    if len(lists) < 4:
        return None
    size = [sum(tensor.numel * tensor.itemsize for tensor in tensors) for tensors in lists[:4]]
    elements = sum(tensor.numel for tensor in lists[0])
    return Work("optimizer", 14.0 * elements, sum(size), size[0] + size[2] + size[3], lists[0][0].dtype)
