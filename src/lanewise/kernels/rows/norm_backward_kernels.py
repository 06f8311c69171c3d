"""The backward kernels behind `layer_norm`, `rms_norm` and their fused residual additions.

With g = dy * w and xhat the normalised x: `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))` (RMSNorm without the mean
of g), `dw = sum over rows of dy * xhat`, `db = sum over rows of dy`. Each program adds up dw and db of its rows in fp32
and a second launch adds the programs in a fixed order: no atomics, bit-equal between runs.

Bytes: dy and x read and dx written once.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel
from lanewise.kernels.rows.clusters import again, begin, exchange, ready, received
from lanewise.kernels.rows.row_blocks import add_pairs, part_of_row

__all__ = ["ADD_UP_KERNEL", "BACKWARD_KERNEL", "BACKWARD_SPLIT_KERNEL", "COLUMNS_KERNEL", "SUMS_KERNEL"]


@triton.jit
def _norm_backward(
    dy_ptr,
    x_ptr,
    w_ptr,
    ds_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    rows,
    COLS: tl.constexpr,
    DY_STRIDE: tl.constexpr,
    DS_STRIDE: tl.constexpr,
    RMS: tl.constexpr,
    HAS_W: tl.constexpr,
    NEED_W: tl.constexpr,
    NEED_B: tl.constexpr,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """dx of whole rows; dw and db of this program's rows into row `program_id` of [programs, cols] fp32."""
    col = tl.arange(0, BLOCK)[None, :]
    if HAS_W:
        w = tl.load(w_ptr + col, mask=col < COLS, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if NEED_W:
        dw = tl.zeros([ROWS, BLOCK], tl.float32)
    if NEED_B:
        db = tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < COLS)
        dy = tl.load(dy_ptr + row * DY_STRIDE + col, mask=inside, other=0.0, eviction_policy="evict_first")
        x = tl.load(x_ptr + row * COLS + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = dy.to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        if RMS:
            xhat = x * rstd
        else:
            mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
            xhat = tl.where(inside, (x - mean) * rstd, 0.0)
        g = dy
        if HAS_W:
            g = dy * w
        dx = g - xhat * (tl.sum(g * xhat, axis=1)[:, None] * (1.0 / COLS))
        if not RMS:
            dx = dx - tl.sum(g, axis=1)[:, None] * (1.0 / COLS)
        dx = dx * rstd
        if ADD:
            dx += tl.load(ds_ptr + row * DS_STRIDE + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * COLS + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")
        if NEED_W:
            dw += dy * xhat
        if NEED_B:
            db += dy
    at = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, BLOCK)
    if NEED_W:
        tl.store(dw_ptr + at, tl.sum(dw, axis=0), mask=tl.arange(0, BLOCK) < COLS)
    if NEED_B:
        tl.store(db_ptr + at, tl.sum(db, axis=0), mask=tl.arange(0, BLOCK) < COLS)


@triton.jit
def _norm_backward_split(
    dy_ptr,
    x_ptr,
    w_ptr,
    ds_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    rows,
    COLS: tl.constexpr,
    DY_STRIDE: tl.constexpr,
    DS_STRIDE: tl.constexpr,
    RMS: tl.constexpr,
    HAS_W: tl.constexpr,
    NEED_W: tl.constexpr,
    NEED_B: tl.constexpr,
    ADD: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HOLD: tl.constexpr,
    STREAM: tl.constexpr,
):
    """As `_norm_backward` for one row at a time, with its columns spread over a cluster if PARTS > 1, in few registers:
    rows wait in their own dtype and are converted again, the next one is loaded before this one is done (AHEAD).
    """
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    group = tl.program_id(0) // PARTS
    col = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    within = col < COLS
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    step = tl.num_programs(0) // PARTS
    if PARTS > 1:
        begin()
    if HAS_W:
        w_raw = tl.load(w_ptr + col, mask=within, other=0.0)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    dy_ahead = part_of_row(dy_ptr, group, rows, DY_STRIDE, col, within, 0.0, POLICY)
    x_ahead = part_of_row(x_ptr, group, rows, COLS, col, within, 0.0, POLICY)
    rstd_ahead = tl.load(rstd_ptr + group)
    mean_ahead = 0.0
    if not RMS:
        mean_ahead = tl.load(mean_ptr + group)
    if PARTS > 1:
        ready()
    turn = 0
    for r in range(group, rows, step):
        row = r + group.to(tl.int64) * 0
        dy_raw, x_raw, rstd, mean = dy_ahead, x_ahead, rstd_ahead, mean_ahead
        after = r + step
        if AHEAD:
            dy_ahead = part_of_row(dy_ptr, after, rows, DY_STRIDE, col, within, 0.0, POLICY)
            x_ahead = part_of_row(x_ptr, after, rows, COLS, col, within, 0.0, POLICY)
            rstd_ahead = tl.load(rstd_ptr + after, mask=after < rows, other=0.0)
            if not RMS:
                mean_ahead = tl.load(mean_ptr + after, mask=after < rows, other=0.0)
        g, x = dy_raw.to(tl.float32), x_raw.to(tl.float32)
        if HAS_W:
            g = g * again(w_raw).to(tl.float32)
        along, plain = tl.reduce((g * (x - mean) * rstd, g), 0, add_pairs)
        if PARTS > 1:
            where = exchange(along, plain, turn, PARTS)
            turn = 1 - turn
            along = tl.sum(tl.where(known, received(where, parts, 0), 0.0), axis=0)
            plain = tl.sum(tl.where(known, received(where, parts, 1), 0.0), axis=0)
        along = along * (1.0 / COLS)
        plain = plain * (1.0 / COLS)
        dy = again(dy_raw).to(tl.float32)
        xhat = (again(x_raw).to(tl.float32) - mean) * rstd
        g = dy
        if HAS_W:
            g = dy * again(w_raw).to(tl.float32)
        dx = g - xhat * along
        if not RMS:
            dx = dx - plain
        dx = dx * rstd
        if ADD:
            dx += part_of_row(ds_ptr, r, rows, DS_STRIDE, col, within, 0.0, POLICY).to(tl.float32)
        tl.store(dx_ptr + row * COLS + col, dx.to(dx_ptr.dtype.element_ty), mask=within, eviction_policy=POLICY)
        if NEED_W:
            dw += dy * xhat
        if NEED_B:
            db += dy
        if not AHEAD:
            dy_ahead = part_of_row(dy_ptr, after, rows, DY_STRIDE, col, within, 0.0, POLICY)
            x_ahead = part_of_row(x_ptr, after, rows, COLS, col, within, 0.0, POLICY)
            rstd_ahead = tl.load(rstd_ptr + after, mask=after < rows, other=0.0)
            if not RMS:
                mean_ahead = tl.load(mean_ptr + after, mask=after < rows, other=0.0)
    at = group.to(tl.int64) * COLS + col
    if NEED_W:
        tl.store(dw_ptr + at, dw, mask=within)
    if NEED_B:
        tl.store(db_ptr + at, db, mask=within)


@triton.jit
def _add_up(
    dw_ptr,
    db_ptr,
    dw_out,
    db_out,
    programs,
    COLS: tl.constexpr,
    NEED_W: tl.constexpr,
    NEED_B: tl.constexpr,
    HEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum [programs, cols] over programs in a fixed order, HEIGHT of them at once: what is waited for is latency."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    dw = tl.zeros([HEIGHT, BLOCK], tl.float32)
    db = tl.zeros([HEIGHT, BLOCK], tl.float32)
    for start in range(0, programs, HEIGHT):
        program = start + tl.arange(0, HEIGHT).to(tl.int64)[:, None]
        inside = (program < programs) & (col < COLS)
        if NEED_W:
            dw += tl.load(dw_ptr + program * COLS + col, mask=inside, other=0.0)
        if NEED_B:
            db += tl.load(db_ptr + program * COLS + col, mask=inside, other=0.0)
    out = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if NEED_W:
        tl.store(dw_out + out, tl.sum(dw, axis=0).to(dw_out.dtype.element_ty), mask=out < COLS)
    if NEED_B:
        tl.store(db_out + out, tl.sum(db, axis=0).to(db_out.dtype.element_ty), mask=out < COLS)


@triton.jit
def _norm_backward_sums(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    rows,
    COLS: tl.constexpr,
    DY_STRIDE: tl.constexpr,
    RMS: tl.constexpr,
    HAS_W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """mean(g) and mean(g * xhat) of one long row into `sums` [rows, 2]."""
    row = tl.program_id(0).to(tl.int64)
    rstd = tl.load(rstd_ptr + row)
    mean = 0.0
    if not RMS:
        mean = tl.load(mean_ptr + row)
    along = tl.zeros([BLOCK], tl.float32)
    plain = tl.zeros([BLOCK], tl.float32)
    for start in range(0, COLS, BLOCK):
        col = start + tl.arange(0, BLOCK)
        within = col < COLS
        dy = tl.load(dy_ptr + row * DY_STRIDE + col, mask=within, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * COLS + col, mask=within, other=0.0).to(tl.float32)
        if HAS_W:
            dy = dy * tl.load(w_ptr + col, mask=within, other=0.0, eviction_policy="evict_last").to(tl.float32)
        along += dy * tl.where(within, (x - mean) * rstd, 0.0)
        plain += dy
    tl.store(sums_ptr + row * 2, tl.sum(plain, axis=0) * (1.0 / COLS))
    tl.store(sums_ptr + row * 2 + 1, tl.sum(along, axis=0) * (1.0 / COLS))


@triton.jit
def _norm_backward_columns(
    dy_ptr,
    x_ptr,
    w_ptr,
    ds_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    rows,
    COLS: tl.constexpr,
    DY_STRIDE: tl.constexpr,
    DS_STRIDE: tl.constexpr,
    RMS: tl.constexpr,
    HAS_W: tl.constexpr,
    NEED_W: tl.constexpr,
    NEED_B: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx, and this row group's dw and db, of one block of columns: rows too long for one program."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = col < COLS
    if HAS_W:
        w = tl.load(w_ptr + col, mask=within, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    group = tl.program_id(1)
    for r in range(group, rows, tl.num_programs(1)):
        row = r + group.to(tl.int64) * 0
        dy = tl.load(dy_ptr + row * DY_STRIDE + col, mask=within, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * COLS + col, mask=within, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        plain = tl.load(sums_ptr + row * 2)
        along = tl.load(sums_ptr + row * 2 + 1)
        if RMS:
            xhat = x * rstd
        else:
            xhat = tl.where(within, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        g = dy
        if HAS_W:
            g = dy * w
        dx = g - xhat * along
        if not RMS:
            dx = dx - plain
        dx = dx * rstd
        if ADD:
            dx += tl.load(ds_ptr + row * DS_STRIDE + col, mask=within, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * COLS + col, dx.to(dx_ptr.dtype.element_ty), mask=within)
        dw += dy * xhat
        db += dy
    at = group.to(tl.int64) * COLS + col
    if NEED_W:
        tl.store(dw_ptr + at, dw, mask=within)
    if NEED_B:
        tl.store(db_ptr + at, db, mask=within)


BACKWARD_KERNEL = Kernel(_norm_backward)
BACKWARD_SPLIT_KERNEL = Kernel(_norm_backward_split)
ADD_UP_KERNEL = Kernel(_add_up)
SUMS_KERNEL = Kernel(_norm_backward_sums)
COLUMNS_KERNEL = Kernel(_norm_backward_columns)
