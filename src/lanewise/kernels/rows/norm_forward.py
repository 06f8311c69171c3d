"""The forward kernels behind `layer_norm`, `rms_norm` and their fused residual additions.

`y = (x - mean) * rstd * w + b` over the last dimension (LayerNorm) or `y = x * rstd * w` (RMSNorm), with
x = input + residual, rounded to the input's dtype and returned as well, when a residual is given. x [rows, cols] in
fp32, fp16 or bf16, w and b [cols] in the same dtype; statistics and arithmetic in fp32, one rounding at the end.

The variance is never a plain difference of squares. It is taken around the mean, in two reductions, or in one around a
value c that lies among the row's own: the mean of its first values. Of n values of which the first k have the mean c,
(c - mean)^2 is at most n / k times the variance (Cauchy-Schwarz over the two groups), so that the difference
mean((x - c)^2) - (mean - c)^2 loses at most a factor of n / k of fp32's precision. Chan, Golub and LeVeque, Algorithms
for computing the sample variance, 1983.

Bytes: x (and the residual) read and y (and the sum) written once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel, Launch
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.rows.clusters import again, begin, exchange, ready, received
from lanewise.kernels.rows.row_layout import (
    WIDEST_ROW,
    Layout,
    add_pairs,
    as_rows,
    first_mean,
    launch_split,
    load,
    merged_moments,
    part_of_row,
    pick_layout,
    rows_launch,
    split_meta,
    store,
    twice_launch,
)
from lanewise.kernels.rows.two_pass import NORM_KERNEL as PARTS_KERNEL

__all__ = ["ROWS_KERNEL", "SPLIT_KERNEL", "TWICE_KERNEL", "NormOutputs", "norm_forward"]


@triton.jit
def _norm_rows(
    x_ptr,
    r_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    s_ptr,
    mean_ptr,
    rstd_ptr,
    rows,
    cols,
    x_stride,
    r_stride,
    EPS: tl.constexpr,
    RMS: tl.constexpr,
    ADD: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    SAVE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    LEAN: tl.constexpr,
    EARLY: tl.constexpr,
    ONCE: tl.constexpr,
    STREAM: tl.constexpr,
    EVEN: tl.constexpr,
):
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    col = tl.arange(0, BLOCK)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        raw = load(x_ptr + row * x_stride + col, inside, 0.0, POLICY, EVEN)
        if ADD:
            r = load(r_ptr + row * r_stride + col, inside, 0.0, POLICY, EVEN)
            raw = (raw.to(tl.float32) + r.to(tl.float32)).to(s_ptr.dtype.element_ty)
            store(s_ptr + row * cols + col, raw, inside, "", EVEN)
        # Weights come from L2 or L1: before the reductions, where the wait is hidden, or after them, where they cost no
        # registers meanwhile.
        if EARLY and HAS_W:
            w = load(w_ptr + col, col < cols, 0.0, "evict_last", EVEN)
        if EARLY and HAS_B:
            b = load(b_ptr + col, col < cols, 0.0, "evict_last", EVEN)
        x = raw.to(tl.float32)
        if RMS:
            var = tl.sum(x * x, axis=1)[:, None] / cols
            mean = 0.0
        elif ONCE and HALF:
            only = tile + tl.program_id(0).to(tl.int64) * 0  # ROWS is 1
            centre = first_mean(x_ptr + only * x_stride, r_ptr + only * r_stride, cols, ADD)
            apart = x - centre if EVEN else tl.where(inside, x - centre, 0.0)
            missed, square = tl.reduce((apart, apart * apart), 1, add_pairs)
            missed = missed[:, None] / cols
            mean = centre + missed
            var = tl.maximum(square[:, None] / cols - missed * missed, 0.0, propagate_nan=tl.PropagateNan.ALL)
        else:
            mean = tl.sum(x, axis=1)[:, None] / cols
            if LEAN:
                x = again(raw).to(tl.float32)
            centred = x - mean if EVEN else tl.where(inside, x - mean, 0.0)
            if HALF:
                # What the rounded mean misses is far below the steps of the values themselves.
                var = tl.sum(centred * centred, axis=1)[:, None] / cols
            else:
                # What it missed is the mean of what is left, found in the pass of the variance.
                missed, square = tl.reduce((centred, centred * centred), 1, add_pairs)
                missed = missed[:, None] / cols
                mean += missed
                var = tl.maximum(square[:, None] / cols - missed * missed, 0.0, propagate_nan=tl.PropagateNan.ALL)
        rstd = tl.rsqrt(var + EPS)
        if LEAN:
            x = again(raw).to(tl.float32)
        if SAVE:
            first = (col == 0) & (row < rows)
            tl.store(rstd_ptr + row + col * 0, rstd + tl.zeros([ROWS, BLOCK], tl.float32), mask=first)
            if not RMS:
                tl.store(mean_ptr + row + col * 0, mean + tl.zeros([ROWS, BLOCK], tl.float32), mask=first)
        y = x * rstd if RMS else (x - mean) * rstd
        if HAS_W:
            if not EARLY:
                w = load(w_ptr + col, col < cols, 0.0, "evict_last", EVEN)
            y = y * w.to(tl.float32)
        if HAS_B:
            if not EARLY:
                b = load(b_ptr + col, col < cols, 0.0, "evict_last", EVEN)
            y = y + b.to(tl.float32)
        store(y_ptr + row * cols + col, y, inside, POLICY, EVEN)


@triton.jit
def _norm_twice(
    x_ptr,
    r_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    s_ptr,
    mean_ptr,
    rstd_ptr,
    rows,
    cols,
    x_stride,
    r_stride,
    EPS: tl.constexpr,
    RMS: tl.constexpr,
    ADD: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    SAVE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    """ROWS rows, block by block: statistics on the way forth, results on the way back. Few registers, so that many
    programs share a multiprocessor; several rows share a read of the weights."""
    at = tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
    known = row < rows
    x_row, r_row, s_row, y_row = x_ptr + row * x_stride, r_ptr + row * r_stride, s_ptr + row * cols, y_ptr + row * cols
    centre = tl.zeros([ROWS, 1], tl.float32)
    if not RMS and ROWS == 1 and x_ptr.dtype.element_ty.primitive_bitwidth == 16:
        start = tl.program_id(0).to(tl.int64)
        centre += first_mean(x_ptr + start * x_stride, r_ptr + start * r_stride, cols, ADD)
    elif not RMS:
        inside = known & (at < cols)
        x = load(x_row + at, inside, 0.0, "evict_last", EVEN).to(tl.float32)
        if ADD:
            x += load(r_row + at, inside, 0.0, "evict_last", EVEN).to(tl.float32)
        centre = tl.sum(x, axis=1)[:, None] / tl.minimum(cols, BLOCK)
    first = tl.zeros([ROWS, BLOCK], tl.float32)
    second = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in tl.range(0, cols, BLOCK, num_stages=1):
        col = start + at
        inside = known & (col < cols)
        raw = load(x_row + col, inside, 0.0, "evict_first" if ADD else "evict_last", EVEN)
        if ADD:
            r = load(r_row + col, inside, 0.0, "evict_first", EVEN)
            raw = (raw.to(tl.float32) + r.to(tl.float32)).to(s_ptr.dtype.element_ty)
            store(s_row + col, raw, inside, "evict_last", EVEN)
        x = raw.to(tl.float32)
        if RMS:
            second += x * x
        else:
            apart = x - centre if EVEN else tl.where(inside, x - centre, 0.0)
            first += apart
            second += apart * apart
    if RMS:
        off = tl.zeros([ROWS, 1], tl.float32)
        var = tl.sum(second, axis=1)[:, None] / cols
    else:
        off, var = tl.reduce((first, second), 1, add_pairs)
        off = off[:, None] / cols
        var = tl.maximum(var[:, None] / cols - off * off, 0.0, propagate_nan=tl.PropagateNan.ALL)
    rstd = tl.rsqrt(var + EPS)
    if SAVE:
        tl.store(rstd_ptr + row, rstd, mask=known)
        if not RMS:
            tl.store(mean_ptr + row, centre + off, mask=known)
    if ADD:
        tl.debug_barrier()  # the sums were written by other threads of this program
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK, num_stages=1):
        col = last - back + at
        inside = known & (col < cols)
        x = load(s_row + col if ADD else x_row + col, inside, 0.0, "evict_first", EVEN).to(tl.float32)
        y = x * rstd if RMS else ((x - centre) - off) * rstd
        if HAS_W:
            y = y * load(w_ptr + col, col < cols, 0.0, "evict_last", EVEN).to(tl.float32)
        if HAS_B:
            y = y + load(b_ptr + col, col < cols, 0.0, "evict_last", EVEN).to(tl.float32)
        store(y_row + col, y, inside, "evict_first", EVEN)


@triton.jit
def _norm_split(
    x_ptr,
    r_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    s_ptr,
    mean_ptr,
    rstd_ptr,
    stats_ptr,
    rows,
    cols,
    x_stride,
    r_stride,
    EPS: tl.constexpr,
    RMS: tl.constexpr,
    ADD: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    SAVE: tl.constexpr,
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
    within = col < cols
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    step = tl.num_programs(0) // PARTS
    if PHASE == 0:
        begin()
    if HOLD and HAS_W:
        w_raw = tl.load(w_ptr + col, mask=within, other=0.0)
    if HOLD and HAS_B:
        b_raw = tl.load(b_ptr + col, mask=within, other=0.0)
    ahead = part_of_row(x_ptr, group, rows, x_stride, col, within, 0.0, POLICY)
    if ADD:
        r_ahead = part_of_row(r_ptr, group, rows, r_stride, col, within, 0.0, POLICY)
    if PHASE == 0:
        ready()
    turn = 0
    for r in range(group, rows, step):
        row = r + group.to(tl.int64) * 0
        raw = ahead
        if AHEAD:
            ahead = part_of_row(x_ptr, r + step, rows, x_stride, col, within, 0.0, POLICY)
        if ADD:
            raw = (raw.to(tl.float32) + r_ahead.to(tl.float32)).to(s_ptr.dtype.element_ty)
            if AHEAD:
                r_ahead = part_of_row(r_ptr, r + step, rows, r_stride, col, within, 0.0, POLICY)
            if PHASE != 2:
                tl.store(s_ptr + row * cols + col, raw, mask=within)
        x = raw.to(tl.float32)
        here = stats_ptr + row * (2 * PARTS)
        if PHASE != 2:
            size = tl.maximum(tl.minimum(cols - part * BLOCK, BLOCK), 1)
            if RMS:
                first = tl.sum(x * x, axis=0)
                second = 0.0
            elif raw.dtype.primitive_bitwidth == 16:
                # One reduction, around the part's first values.
                x_part, r_part = x_ptr + row * x_stride + part * BLOCK, r_ptr + row * r_stride + part * BLOCK
                centre = first_mean(x_part, r_part, cols - part * BLOCK, ADD)
                apart = tl.where(within, x - centre, 0.0)
                missed, square = tl.reduce((apart, apart * apart), 0, add_pairs)
                missed = missed / size
                first = centre + missed
                second = square - size * missed * missed
            else:
                # Mean and sum of squares around it, of this part; merged by the formula of Chan, Golub and LeVeque.
                centre = tl.sum(x, axis=0) / size
                if PHASE == 0:
                    x = again(raw).to(tl.float32)
                apart = tl.where(within, x - centre, 0.0)
                missed, square = tl.reduce((apart, apart * apart), 0, add_pairs)
                missed = missed / size
                first = centre + missed
                second = square - size * missed * missed
        if PHASE == 1:
            tl.store(here + part, first)
            tl.store(here + PARTS + part, second)
        if PHASE != 1:
            if PHASE == 0:
                where = exchange(first, second, turn, PARTS)
                turn = 1 - turn
                firsts = tl.where(known, received(where, parts, 0), 0.0)
                seconds = tl.where(known, received(where, parts, 1), 0.0)
                x = again(raw).to(tl.float32)
            else:
                firsts = tl.load(here + parts, mask=known, other=0.0)
                seconds = tl.load(here + PARTS + parts, mask=known, other=0.0)
            if RMS:
                mean = 0.0
                var = tl.sum(firsts, axis=0) / cols
            else:
                mean, var = merged_moments(firsts, seconds, known, parts, cols, BLOCK)
            rstd = tl.rsqrt(var + EPS)
            if SAVE and part == 0:
                tl.store(rstd_ptr + row, rstd)
                if not RMS:
                    tl.store(mean_ptr + row, mean)
            y = x * rstd if RMS else (x - mean) * rstd
            if HAS_W:
                if HOLD:
                    y = y * again(w_raw).to(tl.float32)
                else:
                    y = y * tl.load(w_ptr + col, mask=within, other=0.0, eviction_policy="evict_last").to(tl.float32)
            if HAS_B:
                if HOLD:
                    y = y + again(b_raw).to(tl.float32)
                else:
                    y = y + tl.load(b_ptr + col, mask=within, other=0.0, eviction_policy="evict_last").to(tl.float32)
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=within, eviction_policy=POLICY)
        if not AHEAD:
            ahead = part_of_row(x_ptr, r + step, rows, x_stride, col, within, 0.0, POLICY)
            if ADD:
                r_ahead = part_of_row(r_ptr, r + step, rows, r_stride, col, within, 0.0, POLICY)


ROWS_KERNEL = Kernel(_norm_rows)
SPLIT_KERNEL = Kernel(_norm_split)
TWICE_KERNEL = Kernel(_norm_twice)


class NormOutputs(NamedTuple):
    """y, input + residual (y itself when there is no residual), and the fp32 statistics per row."""

    y: torch.Tensor
    total: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor


def norm_forward(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    rms: bool,
    save: bool,
    traced: bool = False,
    recent: Recent | None = None,
) -> NormOutputs:
    """Run the forward kernel; the statistics are filled only when `save` is set.

    `recent` is where the call may be kept, under `eps`, as a function of (x, residual, w, b); what that returns is all
    four outputs when `save` is set, y and the sum, or y alone.
    """
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = y if residual is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    flat = as_rows(x)
    rows, cols = flat.shape
    mean = rstd = y
    if save:
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        mean = rstd if rms else torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows == 0 or cols == 0:
        return NormOutputs(y, total, mean, rstd)
    more = flat if residual is None else as_rows(residual)
    scalars = (rows, cols, flat.stride(0), more.stride(0))
    add, has_w, has_b = residual is not None, w is not None, b is not None
    tensors = (flat, more, flat if w is None else w, flat if b is None else b, y, total, mean, rstd)

    def meta() -> dict[str, Any]:
        return {"EPS": eps, "RMS": rms, "ADD": add, "HAS_W": has_w, "HAS_B": has_b, "SAVE": save}

    def shape() -> Layout:
        kernel = "rms_norm" if rms else "layer_norm"
        return pick_layout(kernel, (x.dtype, int(cols), add), "add_norm" if add else kernel, x, cols, traced)

    key = (scalars, eps, rms, add, has_w, has_b, save, x.dtype, x.device.index)

    def whole() -> Launch:
        cut = shape()
        if cut.parts == 0:
            return twice_launch(rows, cols, cut, scalars, meta())
        return rows_launch(rows, cols, cut, scalars, meta(), x.device, norm=True)

    spread = None if cols <= WIDEST_ROW else shape()
    if spread is None or spread.parts <= 1:
        kernel = TWICE_KERNEL if spread is not None and spread.parts == 0 else ROWS_KERNEL
        kept = None
        if traced:
            kernel.trace(tensors, whole())
        else:
            kept = kernel(key, tensors, whole)
    else:
        split = {**meta(), **split_meta(spread, cols)}
        kept = launch_split(
            PARTS_KERNEL if spread.inner else SPLIT_KERNEL, key, tensors, scalars, split, 2, spread, traced
        )
    if recent is None or kept is None:
        return NormOutputs(y, total, mean, rstd)
    if flat.data_ptr() == x.data_ptr() and (residual is None or more.data_ptr() == residual.data_ptr()):
        outputs = [y, *([total] if add else []), *([rstd] if save else []), *([mean] if save and not rms else [])]
        at_total, at_rstd = ~1 if add else ~0, ~(1 + add) if save else ~0
        at_mean = ~(2 + add) if save and not rms else at_rstd
        order = (0, 1 if add else 0, 2 if has_w else 0, 3 if has_b else 0, ~0, at_total, at_mean, at_rstd, 0)
        returned = (0, ~at_total, ~at_mean, ~at_rstd) if save else (0, 1) if add else (0,)
        recent.keep(eps, (x, residual, w, b), outputs, [Step(kept, order)], returned)
    return NormOutputs(y, total, mean, rstd)
