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
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from lanewise.kernels import tuning
from lanewise.kernels.guard import eager, fell_back, hit, host_bound, refuse_tensor
from lanewise.kernels.launch import Kernel, Memo, Remembered
from lanewise.kernels.rowwise import (
    WIDEST_ROW,
    Layout,
    as_rows,
    depart,
    exchange_buffers,
    launch_split,
    layout,
    meet,
    next_power_of_2,
    rows_launch,
    trace_split,
)

__all__ = ["reference", "softmax", "softmax_backward_into", "softmax_into"]

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _logits(x_ptr, mask_ptr, at, mask_at, inside, SCALE: tl.constexpr, HAS_MASK: tl.constexpr):
    x = tl.load(x_ptr + at, mask=inside, other=float("-inf"), eviction_policy="evict_first")
    return _scaled(x, mask_ptr, mask_at, inside, SCALE, HAS_MASK)


@triton.jit
def _scaled(x, mask_ptr, mask_at, inside, SCALE: tl.constexpr, HAS_MASK: tl.constexpr):
    x = x.to(tl.float32)
    if SCALE != 1.0:
        x = x * SCALE
    if HAS_MASK:
        keep = tl.load(mask_ptr + mask_at, mask=inside, other=0)
        x = tl.where(keep != 0, x, float("-inf"))
    if SCALE != 1.0:
        # A padding column must stay -inf whatever the sign of the scale.
        x = tl.where(inside, x, float("-inf"))
    return x


@triton.jit
def _row(x_ptr, r, rows, stride, col, inside, OTHER: tl.constexpr):
    """The program's part of row r, in its own dtype; nothing is read past the last row."""
    base = x_ptr + stride * (r + tl.program_id(0).to(tl.int64) * 0)
    return tl.load(base + col, mask=inside & (r < rows), other=OTHER, eviction_policy="evict_first")


@triton.jit
def _softmax_rows(
    x_ptr,
    mask_ptr,
    y_ptr,
    rows,
    cols,
    x_stride,
    mask_stride,
    SCALE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    col = tl.arange(0, BLOCK)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        x = _logits(x_ptr, mask_ptr, row * x_stride + col, row * mask_stride + col, inside, SCALE, HAS_MASK)
        top = tl.max(x, axis=1)[:, None]
        e = tl.exp2((x - top) * _LOG2E)
        y = e * (1.0 / tl.sum(e, axis=1))[:, None]
        tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _softmax_split(
    x_ptr,
    mask_ptr,
    y_ptr,
    stats_ptr,
    count_ptr,
    rows,
    cols,
    x_stride,
    mask_stride,
    SCALE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    PHASE: tl.constexpr,
):
    group = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    col = part * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    parts = tl.arange(0, PARTS_2)
    step = tl.num_programs(0) // PARTS
    ahead = _row(x_ptr, group, rows, x_stride, col, inside, float("-inf"))
    for r in range(group, rows, step):
        row = r + group.to(tl.int64) * 0
        raw = ahead
        # The next row of this group is on its way while this one waits for its partners.
        ahead = _row(x_ptr, r + step, rows, x_stride, col, inside, float("-inf"))
        x = _scaled(raw, mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        here = stats_ptr + row * (2 * PARTS)
        token = 0
        if PHASE != 2:
            top = tl.max(x, axis=0)
            # A part without any finite entry has no weight; its exponentials must not become NaN here.
            base = tl.where(top == float("-inf"), 0.0, top)
            tl.store(here + part, top)
            tl.store(here + PARTS + part, tl.sum(tl.exp2((x - base) * _LOG2E), axis=0))
        if PHASE == 0:
            token = tl.multiple_of(meet(count_ptr + row, PARTS), 16)
        if PHASE != 1:
            tops = tl.load(here + parts + token, mask=parts < PARTS, other=float("-inf"), cache_modifier=".cg")
            sums = tl.load(here + PARTS + parts + token, mask=parts < PARTS, other=0.0, cache_modifier=".cg")
            if PHASE == 0:
                depart(count_ptr + row, PARTS)
            best = tl.max(tops, axis=0)
            weight = tl.where(tops == float("-inf"), 0.0, tl.exp2((tops - best) * _LOG2E))
            # An all -inf row: best is -inf and x - best is NaN for each entry, as in PyTorch.
            total = tl.sum(sums * weight, axis=0)
            y = tl.exp2((x - best) * _LOG2E) * (1.0 / total)
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _softmax_backward_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    rows,
    cols,
    dy_stride,
    SCALE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    col = tl.arange(0, BLOCK)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + row * cols + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = dy.to(tl.float32)
        dot = tl.sum(dy * y, axis=1)[:, None]
        dx = (dy - dot) * y * SCALE
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _softmax_backward_split(
    dy_ptr,
    y_ptr,
    dx_ptr,
    stats_ptr,
    count_ptr,
    rows,
    cols,
    dy_stride,
    SCALE: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    PHASE: tl.constexpr,
):
    group = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    col = part * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    parts = tl.arange(0, PARTS_2)
    step = tl.num_programs(0) // PARTS
    dy_ahead = _row(dy_ptr, group, rows, dy_stride, col, inside, 0.0)
    y_ahead = _row(y_ptr, group, rows, cols, col, inside, 0.0)
    for r in range(group, rows, step):
        row = r + group.to(tl.int64) * 0
        dy, y = dy_ahead.to(tl.float32), y_ahead.to(tl.float32)
        dy_ahead = _row(dy_ptr, r + step, rows, dy_stride, col, inside, 0.0)
        y_ahead = _row(y_ptr, r + step, rows, cols, col, inside, 0.0)
        here = stats_ptr + row * PARTS
        token = 0
        if PHASE != 2:
            tl.store(here + part, tl.sum(dy * y, axis=0))
        if PHASE == 0:
            token = tl.multiple_of(meet(count_ptr + row, PARTS), 16)
        if PHASE != 1:
            dots = tl.load(here + parts + token, mask=parts < PARTS, other=0.0, cache_modifier=".cg")
            if PHASE == 0:
                depart(count_ptr + row, PARTS)
            dx = (dy - tl.sum(dots, axis=0)) * y * SCALE
            tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)


ROWS_KERNEL = Kernel(_softmax_rows)
SPLIT_KERNEL = Kernel(_softmax_split)
BACKWARD_ROWS_KERNEL = Kernel(_softmax_backward_rows)
BACKWARD_SPLIT_KERNEL = Kernel(_softmax_backward_split)


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
    flags = {"SCALE": scale, "HAS_MASK": mask is not None}
    shape = None if cols <= WIDEST_ROW else _layout(x, cols)
    if shape is None or shape.parts == 1:
        tensors = (flat, mask_bytes, out)
        if traced:
            ROWS_KERNEL.trace(tensors, rows_launch(rows, cols, _layout(x, cols), scalars, flags, x.device))
            return None
        return ROWS_KERNEL(
            (scalars, scale, x.dtype, x.device.index, mask is None),
            tensors,
            lambda: rows_launch(rows, cols, _layout(x, cols), scalars, flags, x.device),
        )
    meta: dict[str, Any] = {
        **flags,
        "PARTS": shape.parts,
        "PARTS_2": next_power_of_2(shape.parts),
        "BLOCK": shape.block,
    }
    if traced:
        stats = torch.empty(2 * shape.parts * rows, device=x.device)
        trace_split(SPLIT_KERNEL, (flat, mask_bytes, out, stats, stats), scalars, meta, rows, shape)
        return None
    stats, count = exchange_buffers(x.device, 2 * shape.parts * rows, rows)
    key = (scalars, scale, x.dtype, x.device.index, mask is None)
    launch_split(SPLIT_KERNEL, key, (flat, mask_bytes, out, stats, count), scalars, meta, rows, shape)
    return None


def _layout(x: torch.Tensor, cols: int) -> Layout:
    return tuning.pick("softmax", (x.dtype, int(cols)), layout(cols))


def softmax_backward_into(
    dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor, scale: float, traced: bool = False
) -> None:
    """Write the gradient for the logits into `dx`, from that of the (contiguous) softmax `y`; any layout of `dy`."""
    grad = as_rows(dy)
    rows, cols = grad.shape
    if rows == 0 or cols == 0:
        return
    scalars = (rows, cols, grad.stride(0))
    key = (scalars, scale, dy.dtype, y.dtype, y.device.index)
    shape = None if cols <= WIDEST_ROW else _backward_layout(y, cols)
    if shape is None or shape.parts == 1:
        tensors = (grad, y, dx)
        if traced:
            BACKWARD_ROWS_KERNEL.trace(
                tensors, rows_launch(rows, cols, _backward_layout(y, cols), scalars, {"SCALE": scale}, y.device)
            )
            return
        BACKWARD_ROWS_KERNEL(
            key,
            tensors,
            lambda: rows_launch(rows, cols, _backward_layout(y, cols), scalars, {"SCALE": scale}, y.device),
        )
        return
    meta = {
        "SCALE": scale,
        "PARTS": shape.parts,
        "PARTS_2": next_power_of_2(shape.parts),
        "BLOCK": shape.block,
    }
    if traced:
        stats = torch.empty(shape.parts * rows, device=y.device)
        trace_split(BACKWARD_SPLIT_KERNEL, (grad, y, dx, stats, stats), scalars, meta, rows, shape)
        return
    stats, count = exchange_buffers(y.device, shape.parts * rows, rows)
    launch_split(BACKWARD_SPLIT_KERNEL, key, (grad, y, dx, stats, count), scalars, meta, rows, shape)


def _backward_layout(y: torch.Tensor, cols: int) -> Layout:
    return tuning.pick("softmax_backward", (y.dtype, int(cols)), layout(cols, "softmax_backward"))


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, mask: torch.Tensor | None) -> torch.Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        softmax_into(x.detach(), out, scale, mask)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        softmax_backward_into(dy, y, dx, ctx.scale)
        return dx, None, None


def softmax(x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of `x * scale` over the last dimension, entries where the boolean `mask` is False left out.

    x [..., cols] fp32, fp16 or bf16, any strides (a row whose elements are not adjacent is copied first); `mask` has
    the shape of x or broadcasts to it. Differentiable once with respect to x. Anything else runs `reference`.
    """
    key = (type(x), x.shape, x.dtype, x.device, scale)
    remembered = _MEMO.get(key) if mask is None else None
    if remembered is not None and eager() and x.is_contiguous() and not (x.requires_grad and torch.is_grad_enabled()):
        out = torch.empty_like(x)
        if remembered.go(x, x, out):
            hit("softmax")
            return out
    refused = refuse_tensor(x)
    if refused is None and (x.dim() == 0 or (mask is not None and mask.dtype != torch.bool)):
        refused = "mask dtype or rank 0"
    if refused is None and x.requires_grad and torch.is_grad_enabled() and eager() and host_bound(x):
        refused = "host-bound with gradients"
    if refused is not None:
        fell_back("softmax", refused)
        return reference(x, scale, mask)
    hit("softmax")
    if not eager():
        return torch.ops.lanewise.softmax(x, float(scale), mask)
    if x.requires_grad and torch.is_grad_enabled():
        return _Softmax.apply(x, float(scale), mask)  # pyright: ignore[reportReturnType]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kept = softmax_into(x, out, float(scale), mask)
    if kept is not None and mask is None and x.is_contiguous():
        _MEMO[key] = kept
    return out


_MEMO = Memo()
