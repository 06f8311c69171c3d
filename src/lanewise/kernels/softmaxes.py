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

from lanewise.kernels.clusters import again, begin, exchange, ready, received
from lanewise.kernels.gradients import apply as _apply
from lanewise.kernels.gradients import differentiable_once
from lanewise.kernels.guard import HOST_BOUND, compiling, eager, fell_back, hit, host_bound, refuse_tensor
from lanewise.kernels.launch import Kernel, Remembered
from lanewise.kernels.quick import Recent, Step
from lanewise.kernels.rowwise import (
    WIDEST_ROW,
    Layout,
    as_rows,
    launch_split,
    part_of_row,
    pick_layout,
    rows_launch,
    split_meta,
)

__all__ = ["reference", "softmax", "softmax_backward_into", "softmax_gradient", "softmax_into"]

_LOG2E = tl.constexpr(1.4426950408889634)


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
    LEAN: tl.constexpr,
    STREAM: tl.constexpr,
):
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    col = tl.arange(0, BLOCK)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        raw = tl.load(x_ptr + row * x_stride + col, mask=inside, other=float("-inf"), eviction_policy=POLICY)
        x = _scaled(raw, mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        top = tl.max(x, axis=1)[:, None]
        if LEAN:
            x = _scaled(again(raw), mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        e = tl.exp2((x - top) * _LOG2E)
        whole = tl.sum(e, axis=1)[:, None]
        y = e * (1.0 / whole)
        tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy=POLICY)


@triton.jit
def _softmax_split(
    x_ptr,
    mask_ptr,
    y_ptr,
    stats_ptr,
    rows,
    cols,
    x_stride,
    mask_stride,
    SCALE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HOLD: tl.constexpr,
    STREAM: tl.constexpr,
    PHASE: tl.constexpr,
):
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    group = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    col = part * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    step = tl.num_programs(0) // PARTS
    if PHASE == 0:
        begin()
    ahead = part_of_row(x_ptr, group, rows, x_stride, col, inside, float("-inf"), POLICY)
    if PHASE == 0:
        ready()
    turn = 0
    for r in range(group, rows, step):
        row = r + group.to(tl.int64) * 0
        raw = ahead
        if AHEAD:
            ahead = part_of_row(x_ptr, r + step, rows, x_stride, col, inside, float("-inf"), POLICY)
        x = _scaled(raw, mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        here = stats_ptr + row * (2 * PARTS)
        top = tl.max(x, axis=0)
        # A part without any finite entry has no weight; its exponentials must not become NaN here.
        base = tl.where(top == float("-inf"), 0.0, top)
        if PHASE == 0:
            x = _scaled(again(raw), mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        e = tl.exp2((x - base) * _LOG2E)
        if PHASE != 2:
            weight = tl.sum(e, axis=0)
        if PHASE == 1:
            tl.store(here + part, top)
            tl.store(here + PARTS + part, weight)
        if PHASE != 1:
            if PHASE == 0:
                where = exchange(top, weight, turn, PARTS)
                turn = 1 - turn
                tops = tl.where(known, received(where, parts, 0), float("-inf"))
                sums = tl.where(known, received(where, parts, 1), 0.0)
            else:
                tops = tl.load(here + parts, mask=known, other=float("-inf"))
                sums = tl.load(here + PARTS + parts, mask=known, other=0.0)
            best = tl.max(tops, axis=0)
            share = tl.where(tops == float("-inf"), 0.0, tl.exp2((tops - best) * _LOG2E))
            # One exponential an element: those of this part are rescaled to the row's maximum. In a row of -inf the
            # difference of the maxima is NaN, and so is each entry, as in PyTorch.
            y = e * (tl.exp2((top - best) * _LOG2E) / tl.sum(sums * share, axis=0))
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy=POLICY)
        if not AHEAD:
            ahead = part_of_row(x_ptr, r + step, rows, x_stride, col, inside, float("-inf"), POLICY)


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
    LEAN: tl.constexpr,
    STREAM: tl.constexpr,
):
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    col = tl.arange(0, BLOCK)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        dy_raw = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0, eviction_policy=POLICY)
        y_raw = tl.load(y_ptr + row * cols + col, mask=inside, other=0.0, eviction_policy=POLICY)
        dy, y = dy_raw.to(tl.float32), y_raw.to(tl.float32)
        dot = tl.sum(dy * y, axis=1)[:, None]
        if LEAN:
            dy, y = again(dy_raw).to(tl.float32), again(y_raw).to(tl.float32)
        dx = (dy - dot) * y * SCALE
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy=POLICY)


@triton.jit
def _softmax_backward_split(
    dy_ptr,
    y_ptr,
    dx_ptr,
    stats_ptr,
    rows,
    cols,
    dy_stride,
    SCALE: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HOLD: tl.constexpr,
    STREAM: tl.constexpr,
    PHASE: tl.constexpr,
):
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    group = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    col = part * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    step = tl.num_programs(0) // PARTS
    if PHASE == 0:
        begin()
    dy_ahead = part_of_row(dy_ptr, group, rows, dy_stride, col, inside, 0.0, POLICY)
    y_ahead = part_of_row(y_ptr, group, rows, cols, col, inside, 0.0, POLICY)
    if PHASE == 0:
        ready()
    turn = 0
    for r in range(group, rows, step):
        row = r + group.to(tl.int64) * 0
        dy_raw, y_raw = dy_ahead, y_ahead
        if AHEAD:
            dy_ahead = part_of_row(dy_ptr, r + step, rows, dy_stride, col, inside, 0.0, POLICY)
            y_ahead = part_of_row(y_ptr, r + step, rows, cols, col, inside, 0.0, POLICY)
        dy, y = dy_raw.to(tl.float32), y_raw.to(tl.float32)
        here = stats_ptr + row * PARTS
        if PHASE != 2:
            dot = tl.sum(dy * y, axis=0)
        if PHASE == 1:
            tl.store(here + part, dot)
        if PHASE != 1:
            if PHASE == 0:
                where = exchange(dot, 0.0, turn, PARTS)
                turn = 1 - turn
                dots = tl.where(known, received(where, parts, 0), 0.0)
                dy, y = again(dy_raw).to(tl.float32), again(y_raw).to(tl.float32)
            else:
                dots = tl.load(here + parts, mask=known, other=0.0)
            dx = (dy - tl.sum(dots, axis=0)) * y * SCALE
            tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy=POLICY)
        if not AHEAD:
            dy_ahead = part_of_row(dy_ptr, r + step, rows, dy_stride, col, inside, 0.0, POLICY)
            y_ahead = part_of_row(y_ptr, r + step, rows, cols, col, inside, 0.0, POLICY)


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
    shape = None if cols <= WIDEST_ROW else _layout(x, cols, traced)
    if shape is None or shape.parts == 1:
        tensors = (flat, mask_bytes, out)
        if traced:
            ROWS_KERNEL.trace(tensors, rows_launch(rows, cols, _layout(x, cols, traced), scalars, flags, x.device))
            return None
        return ROWS_KERNEL(
            (scalars, scale, x.dtype, x.device.index, mask is None),
            tensors,
            lambda: rows_launch(rows, cols, _layout(x, cols, traced), scalars, flags, x.device),
        )
    meta: dict[str, Any] = {**flags, **split_meta(shape)}
    key = (scalars, scale, x.dtype, x.device.index, mask is None)
    return launch_split(SPLIT_KERNEL, key, (flat, mask_bytes, out), scalars, meta, 2, shape, traced)


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
    key = (scalars, scale, dy.dtype, y.dtype, y.device.index)
    shape = None if cols <= WIDEST_ROW else _backward_layout(y, cols, traced)
    if shape is None or shape.parts == 1:
        tensors = (grad, y, dx)
        if traced:
            BACKWARD_ROWS_KERNEL.trace(
                tensors, rows_launch(rows, cols, _backward_layout(y, cols, traced), scalars, {"SCALE": scale}, y.device)
            )
            return None
        return BACKWARD_ROWS_KERNEL(
            key,
            tensors,
            lambda: rows_launch(rows, cols, _backward_layout(y, cols, traced), scalars, {"SCALE": scale}, y.device),
        )
    meta = {"SCALE": scale, **split_meta(shape)}
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


def softmax(x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of `x * scale` over the last dimension, entries where the boolean `mask` is False left out.

    x [..., cols] fp32, fp16 or bf16, any strides (a row whose elements are not adjacent is copied first); `mask` has
    the shape of x or broadcasts to it. Differentiable once with respect to x. Anything else runs `reference`.
    """
    if mask is None and not compiling():
        for quick in _RECENT.get(scale):
            out = quick(x)
            if out is not None:
                return out
    refused = refuse_tensor(x)
    if refused is None and (x.dim() == 0 or (mask is not None and mask.dtype != torch.bool)):
        refused = "mask dtype or rank 0"
    if refused is None and x.requires_grad and torch.is_grad_enabled() and eager() and host_bound(x):
        refused = HOST_BOUND
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
