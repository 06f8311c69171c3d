"""Softmax over the last dimension in one pass over memory, also scaled and masked.

`softmax(x, scale=s, mask=m)` is `torch.softmax((x * s).masked_fill(~m, -inf), -1)`: x [..., cols] in fp32, fp16 or
bf16, the result in the same dtype; arithmetic in fp32, rounded once. A row whose entries are all -inf (or all masked)
gives NaN, a row with NaN gives NaN, a row with +inf gives NaN, as in PyTorch.

Bytes: one read and one write of x (plus the mask). Rows of up to 16384 columns stay in the registers of one program;
longer ones (tested to 2^20) are shared by several, which exchange a maximum and a sum (the online softmax of Milakov
and Gimelshein, 2018, with one rescaling per part instead of one per element).
"""

from __future__ import annotations

from typing import Any

import torch

from lanewise.kernels.dispatch.autograd_functions import apply as _apply
from lanewise.kernels.dispatch.autograd_functions import differentiable_once
from lanewise.kernels.dispatch.eligibility import (
    HOST_BOUND,
    compiling,
    eager,
    fell_back,
    hit,
    refuse_tensor,
    too_small_to_train,
)
from lanewise.kernels.dispatch.launcher import Launch, Remembered
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.rows.row_layout import (
    WIDEST_ROW,
    Layout,
    alignment,
    as_rows,
    crowd_of,
    launch_split,
    pick_layout,
    read_one_by_one,
    rows_launch,
    split_meta,
    twice_launch,
)
from lanewise.kernels.rows.softmax_backward_kernels import (
    BACKWARD_ROWS_KERNEL,
    BACKWARD_SPLIT_KERNEL,
    BACKWARD_TWICE_KERNEL,
)
from lanewise.kernels.rows.softmax_kernels import PARTS_KERNEL, ROWS_KERNEL, SPLIT_KERNEL, TWICE_KERNEL

__all__ = ["reference", "softmax", "softmax_backward_into", "softmax_gradient", "softmax_into"]


def reference(x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    if scale != 1.0:
        x = x * scale
    if mask is not None:
        x = x.masked_fill(mask.logical_not(), float("-inf"))
    return torch.softmax(x, -1)


def _mask_rows(mask: torch.Tensor | None, x: torch.Tensor, flat: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The mask as bytes and its row stride: 0 for one row that serves all."""
    if mask is None:
        return flat, 0
    if mask.numel() == x.shape[-1] and mask.shape[-1:] == x.shape[-1:]:
        return mask.reshape(-1).contiguous().view(torch.uint8), 0
    return mask.expand(x.shape).contiguous().view(torch.uint8), x.shape[-1]


def softmax_into(
    x: torch.Tensor, out: torch.Tensor, scale: float, mask: torch.Tensor | None, traced: bool = False
) -> Remembered | None:
    """Write the softmax of `x` into the contiguous `out` of the same shape. Returns a launch worth keeping, if any."""
    flat = as_rows(x)
    rows, cols = flat.shape
    if rows == 0 or cols == 0:
        return None
    mask_bytes, mask_stride = (flat, 0) if mask is None else _mask_rows(mask, x, flat)
    x_stride = flat.stride(0)
    scalars = (rows, cols, x_stride, mask_stride)
    flags = {"SCALE": scale, "HAS_MASK": mask is not None, "ALIGN": alignment(scalars[1:])}
    key = (scalars, scale, x.dtype, x.device.index, mask is None)
    shape = None if cols <= WIDEST_ROW else _layout(x, cols, traced)

    def whole() -> Launch:
        cut = _layout(x, cols, traced)
        if cut.parts == 0:
            return twice_launch(rows, cols, cut, scalars, flags, together=True)
        return rows_launch(rows, cols, cut, scalars, flags)

    if shape is None or shape.parts <= 1:
        kernel = TWICE_KERNEL if shape is not None and shape.parts == 0 else ROWS_KERNEL
        tensors = (flat, mask_bytes, out)
        if traced:
            kernel.trace(tensors, whole())
            return None
        return kernel(key, tensors, whole)
    meta: dict[str, Any] = {**flags, **split_meta(shape, cols)}
    return launch_split(
        PARTS_KERNEL if shape.inner else SPLIT_KERNEL, key, (flat, mask_bytes, out), scalars, meta, 2, shape, traced
    )


def _layout(x: torch.Tensor, cols: int, traced: bool) -> Layout:
    return pick_layout("softmax", (x.dtype, int(cols)), "softmax", x, cols, traced)


def softmax_backward_into(
    dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor, scale: float, traced: bool = False
) -> Remembered | None:
    """Write the gradient for the logits into `dx`, from that of the (contiguous) softmax `y`; any layout of `dy`.

    Returns a launch worth keeping, if any.
    """
    grad = as_rows(dy)
    rows, cols = grad.shape
    if rows == 0 or cols == 0:
        return None
    scalars = (rows, cols, grad.stride(0))
    flags: dict[str, Any] = {"SCALE": scale, "ALIGN": alignment(scalars[1:])}
    key = (scalars, scale, dy.dtype, y.dtype, y.device.index)
    shape = None if cols <= WIDEST_ROW else _backward_layout(y, cols, traced)

    def whole() -> Launch:
        cut = _backward_layout(y, cols, traced)
        if cut.parts == 0:
            return twice_launch(rows, cols, cut, scalars, flags)
        return rows_launch(rows, cols, cut, scalars, flags)

    if shape is None or shape.parts <= 1:
        kernel = BACKWARD_TWICE_KERNEL if shape is not None and shape.parts == 0 else BACKWARD_ROWS_KERNEL
        if traced:
            kernel.trace((grad, y, dx), whole())
            return None
        return kernel(key, (grad, y, dx), whole)
    meta = {**flags, **split_meta(shape)}
    return launch_split(BACKWARD_SPLIT_KERNEL, key, (grad, y, dx), scalars, meta, 1, shape, traced)


def _backward_layout(y: torch.Tensor, cols: int, traced: bool) -> Layout:
    return pick_layout("softmax_backward", (y.dtype, int(cols)), "softmax_backward", y, cols, traced)


def softmax_gradient(dy: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """The gradient for the logits, from that of the softmax `y` (contiguous)."""
    for quick in _RECENT_BACKWARD.get(scale):
        dx = quick(dy, y)
        if dx is not None:
            return dx
    dx = torch.empty_like(y)
    kept = softmax_backward_into(dy, y, dx, scale)
    if kept is not None and as_rows(dy).data_ptr() == dy.data_ptr():
        _RECENT_BACKWARD.keep(scale, (dy, y), (dx,), [Step(kept, (0, 1, ~0, 0))], (0,))
    return dx


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, mask: torch.Tensor | None) -> torch.Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        softmax_into(x.detach(), out, scale, mask)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (y,) = ctx.saved_tensors
        return softmax_gradient(dy, y, ctx.scale), None, None


def _better_left(x: torch.Tensor) -> bool:
    """Whether PyTorch is faster: it reads the middle of long rows 16 bytes at a time wherever they begin.

    0.67 and 0.79 of its speed on 4096 and 333 rows of 50257 values of 2 bytes, 1.1 to 1.8 on few rows, which are shared
    by several programs here (benchmarks/results/h200/kernels, the grid).
    """
    cols = x.shape[-1]
    if cols <= 16384 or x.element_size() != 2 or not read_one_by_one(cols, 2) or not x.is_cuda:
        return False
    return crowd_of(x.numel() // cols, x.device) not in ("1/8", "1")


def softmax(x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of `x * scale` over the last dimension, entries where the boolean `mask` is False left out.

    x [..., cols] fp32, fp16 or bf16, any strides (a row whose elements are not adjacent is copied first); `mask` has
    the shape of x or broadcasts to it. Differentiable once with respect to x. Anything else runs `reference`.
    """
    if not compiling() and too_small_to_train(x):
        fell_back("softmax", HOST_BOUND)
        return reference(x, scale, mask)
    if mask is None and not compiling():
        for quick in _RECENT.get(scale):
            out = quick(x)
            if out is not None:
                return out
    refused = refuse_tensor(x)
    if refused is None and (x.dim() == 0 or (mask is not None and mask.dtype != torch.bool)):
        refused = "mask dtype or rank 0"
    if refused is None and not compiling() and _better_left(x):
        refused = "long rows that begin anywhere"
    if refused is not None:
        fell_back("softmax", refused)
        return reference(x, scale, mask)
    hit("softmax")
    if not eager():
        return torch.ops.lanewise.softmax(x, float(scale), mask)
    if x.requires_grad and torch.is_grad_enabled():
        return _apply(_Softmax, x, float(scale), mask)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kept = softmax_into(x, out, float(scale), mask)
    if kept is not None and mask is None and as_rows(x).data_ptr() == x.data_ptr():
        _RECENT.keep(scale, (x,), (out,), [Step(kept, (0, 0, ~0, 0))], (0,))
    return out


_RECENT = Recent("softmax")
_RECENT_BACKWARD = Recent("softmax_backward", counted=False)
