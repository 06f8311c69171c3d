"""The forward kernels behind `layer_norm`, `rms_norm` and their fused residual additions.

`y = (x - mean) * rstd * w + b` over the last dimension (LayerNorm) or `y = x * rstd * w` (RMSNorm), with
x = input + residual, rounded to the input's dtype and returned as well, when a residual is given. x [rows, cols] in
fp32, fp16 or bf16, w and b [cols] in the same dtype; statistics and arithmetic in fp32, one rounding at the end.

The variance is never a plain difference of squares. It is taken around the mean, in two reductions (of fp32, whose mean
is rounded to steps as wide as the values' own, after the row's first value is subtracted from all), or in one around a
value c that lies among the row's own: the mean of its first values. Of n values of which the first k have the mean c,
(c - mean)^2 is at most n / k times the variance (Cauchy-Schwarz over the two groups), so that the difference
mean((x - c)^2) - (mean - c)^2 loses at most a factor of n / k of fp32's precision. Chan, Golub and LeVeque, Algorithms
for computing the sample variance, 1983.

Bytes: x (and the residual) read and y (and the sum) written once.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel
from lanewise.kernels.rows.clusters import again
from lanewise.kernels.rows.row_blocks import add_pairs, first_mean, load, store

__all__ = ["ROWS_KERNEL", "TWICE_KERNEL"]


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
    COLS: tl.constexpr,
    X_STRIDE: tl.constexpr,
    R_STRIDE: tl.constexpr,
    EPS: tl.constexpr,
    RMS: tl.constexpr,
    ADD: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    SAVE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LEAN: tl.constexpr,
    EARLY: tl.constexpr,
    ONCE: tl.constexpr,
    STREAM: tl.constexpr,
    FULL: tl.constexpr,
    EVEN: tl.constexpr,
):
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    HALF: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    col = tl.arange(0, BLOCK)[None, :]
    first_row = tl.program_id(0).to(tl.int64) * ROWS
    row = first_row + tl.arange(0, ROWS)[:, None]
    inside = col < COLS if FULL else (row < rows) & (col < COLS)
    raw = load(x_ptr + row * X_STRIDE + col, inside, 0.0, POLICY, EVEN)
    if ADD:
        r = load(r_ptr + row * R_STRIDE + col, inside, 0.0, POLICY, EVEN)
        raw = (raw.to(tl.float32) + r.to(tl.float32)).to(s_ptr.dtype.element_ty)
        store(s_ptr + row * COLS + col, raw, inside, "", EVEN)
    start = 0.0
    if not RMS and not HALF:  # the row's first value: the others are near it where they are far from zero
        start = tl.load(x_ptr + row * X_STRIDE, mask=row < rows, other=0.0)
        if ADD:
            start += tl.load(r_ptr + row * R_STRIDE, mask=row < rows, other=0.0)
    # Weights come from L2 or L1: before the reductions, where the wait is hidden, or after them, where they cost no
    # registers meanwhile.
    if EARLY and HAS_W:
        w = load(w_ptr + col, col < COLS, 0.0, "evict_last", EVEN)
    if EARLY and HAS_B:
        b = load(b_ptr + col, col < COLS, 0.0, "evict_last", EVEN)
    x = raw.to(tl.float32)
    if RMS:
        var = tl.sum(x * x, axis=1)[:, None] * (1.0 / COLS)
        mean = 0.0
    elif ONCE and HALF:
        # ROWS is 1
        centre = first_mean(x_ptr + first_row * X_STRIDE, r_ptr + first_row * R_STRIDE, COLS, ADD)
        apart = x - centre if EVEN else tl.where(inside, x - centre, 0.0)
        missed, square = tl.reduce((apart, apart * apart), 1, add_pairs)
        missed = missed[:, None] * (1.0 / COLS)
        mean = centre + missed
        var = tl.maximum(square[:, None] * (1.0 / COLS) - missed * missed, 0.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        if not HALF:  # of half precision, what a rounded mean misses is far below the steps of the values themselves
            x -= start
            x = x if EVEN else tl.where(inside, x, 0.0)
        mean = tl.sum(x, axis=1)[:, None] * (1.0 / COLS)
        if LEAN and HALF:
            x = again(raw).to(tl.float32)
        centred = x - mean if EVEN else tl.where(inside, x - mean, 0.0)
        var = tl.sum(centred * centred, axis=1)[:, None] * (1.0 / COLS)
    rstd = tl.rsqrt(var + EPS)
    if LEAN and HALF:
        x = again(raw).to(tl.float32)
    if SAVE:
        first = (col == 0) & (row < rows)
        tl.store(rstd_ptr + row + col * 0, rstd + tl.zeros([ROWS, BLOCK], tl.float32), mask=first)
        if not RMS:
            tl.store(mean_ptr + row + col * 0, start + mean + tl.zeros([ROWS, BLOCK], tl.float32), mask=first)
    y = x * rstd if RMS else (x - mean) * rstd
    if HAS_W:
        if not EARLY:
            w = load(w_ptr + col, col < COLS, 0.0, "evict_last", EVEN)
        y = y * w.to(tl.float32)
    if HAS_B:
        if not EARLY:
            b = load(b_ptr + col, col < COLS, 0.0, "evict_last", EVEN)
        y = y + b.to(tl.float32)
    store(y_ptr + row * COLS + col, y, inside, POLICY, EVEN)


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
    COLS: tl.constexpr,
    X_STRIDE: tl.constexpr,
    R_STRIDE: tl.constexpr,
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
    x_row, r_row, s_row, y_row = x_ptr + row * X_STRIDE, r_ptr + row * R_STRIDE, s_ptr + row * COLS, y_ptr + row * COLS
    centre = tl.zeros([ROWS, 1], tl.float32)
    if not RMS and ROWS == 1 and x_ptr.dtype.element_ty.primitive_bitwidth == 16:
        start = tl.program_id(0).to(tl.int64)
        centre += first_mean(x_ptr + start * X_STRIDE, r_ptr + start * R_STRIDE, COLS, ADD)
    elif not RMS:
        inside = known & (at < COLS)
        x = load(x_row + at, inside, 0.0, "evict_last", EVEN).to(tl.float32)
        if ADD:
            x += load(r_row + at, inside, 0.0, "evict_last", EVEN).to(tl.float32)
        centre = tl.sum(x, axis=1)[:, None] / tl.minimum(COLS, BLOCK)
    first = tl.zeros([ROWS, BLOCK], tl.float32)
    second = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in tl.range(0, COLS, BLOCK, num_stages=1):
        col = start + at
        inside = known & (col < COLS)
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
        var = tl.sum(second, axis=1)[:, None] * (1.0 / COLS)
    else:
        off, var = tl.reduce((first, second), 1, add_pairs)
        off = off[:, None] * (1.0 / COLS)
        var = tl.maximum(var[:, None] * (1.0 / COLS) - off * off, 0.0, propagate_nan=tl.PropagateNan.ALL)
    rstd = tl.rsqrt(var + EPS)
    if SAVE:
        tl.store(rstd_ptr + row, rstd, mask=known)
        if not RMS:
            tl.store(mean_ptr + row, centre + off, mask=known)
    if ADD:
        tl.debug_barrier()  # the sums were written by other threads of this program
    last = (tl.cdiv(COLS, BLOCK) - 1) * BLOCK
    for back in tl.range(0, COLS, BLOCK, num_stages=1):
        col = last - back + at
        inside = known & (col < COLS)
        x = load(s_row + col if ADD else x_row + col, inside, 0.0, "evict_first", EVEN).to(tl.float32)
        y = x * rstd if RMS else ((x - centre) - off) * rstd
        if HAS_W:
            y = y * load(w_ptr + col, col < COLS, 0.0, "evict_last", EVEN).to(tl.float32)
        if HAS_B:
            y = y + load(b_ptr + col, col < COLS, 0.0, "evict_last", EVEN).to(tl.float32)
        store(y_row + col, y, inside, "evict_first", EVEN)


ROWS_KERNEL = Kernel(_norm_rows)
TWICE_KERNEL = Kernel(_norm_twice)
