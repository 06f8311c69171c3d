"""The forward kernels of the norms for rows that several programs share, as a cluster or in two launches.

`_norm_split` keeps its part of the row in registers. `_norm_parts` walks its part twice: block by block, gathering what
it adds to the row's statistics; then, when the programs have exchanged that through shared memory
(`lanewise.kernels.rows.clusters`), backwards, mostly from L1. What a multiprocessor has on its way is then bounded by L1
and not by its registers. Formulas, layouts of tensors and dtypes: `lanewise.kernels.rows.norm_forward_kernels`; phases:
`lanewise.kernels.rows.row_layout`. Lengths and strides are no constants here: with them they took 7 to 14 % longer.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel
from lanewise.kernels.rows.clusters import again, begin, exchange, ready, received
from lanewise.kernels.rows.row_blocks import add_pairs, first_mean, in_steps, load, merged_moments, part_of_row, store

__all__ = ["PARTS_KERNEL", "SPLIT_KERNEL"]


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
    ALIGN: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HOLD: tl.constexpr,
    STREAM: tl.constexpr,
    PHASE: tl.constexpr,
):
    cols, x_stride, r_stride = in_steps(cols, ALIGN), in_steps(x_stride, ALIGN), in_steps(r_stride, ALIGN)
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


@triton.jit
def _norm_parts(
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
    ALIGN: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    EVEN: tl.constexpr,
    PHASE: tl.constexpr,
):
    cols, x_stride, r_stride = in_steps(cols, ALIGN), in_steps(x_stride, ALIGN), in_steps(r_stride, ALIGN)
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    first_col = part * BLOCK
    at = tl.arange(0, INNER)
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    x_row, r_row, s_row, y_row = x_ptr + row * x_stride, r_ptr + row * r_stride, s_ptr + row * cols, y_ptr + row * cols
    here = stats_ptr + row * (2 * PARTS)
    if PHASE == 0:
        begin()
    if PHASE != 2:
        centre = 0.0
        if not RMS:
            centre = first_mean(x_row + first_col, r_row + first_col, cols - first_col, ADD)
        plain = tl.zeros([INNER], tl.float32)
        square = tl.zeros([INNER], tl.float32)
        for step in tl.range(0, BLOCK, INNER, num_stages=1):
            col = first_col + step + at
            inside = col < cols
            raw = load(x_row + col, inside, 0.0, "evict_first" if ADD else "evict_last", EVEN)
            if ADD:
                r = load(r_row + col, inside, 0.0, "evict_first", EVEN)
                raw = (raw.to(tl.float32) + r.to(tl.float32)).to(s_ptr.dtype.element_ty)
                store(s_row + col, raw, inside, "evict_last", EVEN)
            x = raw.to(tl.float32)
            if RMS:
                square += x * x
            else:
                apart = x - centre if EVEN else tl.where(inside, x - centre, 0.0)
                plain += apart
                square += apart * apart
        if RMS:
            first = tl.sum(square, axis=0)
            second = 0.0
        else:
            size = tl.maximum(tl.minimum(cols - first_col, BLOCK), 1)
            missed, second = tl.reduce((plain, square), 0, add_pairs)
            missed = missed / size
            first = centre + missed
            second = second - size * missed * missed
    if PHASE == 1:
        tl.store(here + part, first)
        tl.store(here + PARTS + part, second)
    if PHASE != 1:
        if PHASE == 0:
            ready()
            where = exchange(first, second, 0, PARTS)
            firsts = tl.where(known, received(where, parts, 0), 0.0)
            seconds = tl.where(known, received(where, parts, 1), 0.0)
        else:
            firsts = tl.load(here + parts, mask=known, other=0.0)
            seconds = tl.load(here + PARTS + parts, mask=known, other=0.0)
        if RMS:
            mean = 0.0
            var = tl.sum(firsts, axis=0) / cols
        else:
            mean, var = merged_moments(firsts, seconds, known, parts, cols, BLOCK)
            var = tl.maximum(var, 0.0, propagate_nan=tl.PropagateNan.ALL)
        rstd = tl.rsqrt(var + EPS)
        if SAVE and part == 0:
            tl.store(rstd_ptr + row, rstd)
            if not RMS:
                tl.store(mean_ptr + row, mean)
        if ADD:
            tl.debug_barrier()  # the sums were written by other threads of this program
        for back in tl.range(0, BLOCK, INNER, num_stages=1):
            col = first_col + (BLOCK - INNER) - back + at
            inside = col < cols
            x = load(s_row + col if ADD else x_row + col, inside, 0.0, "evict_first", EVEN).to(tl.float32)
            y = x * rstd if RMS else (x - mean) * rstd
            if HAS_W:
                y = y * load(w_ptr + col, inside, 0.0, "evict_last", EVEN).to(tl.float32)
            if HAS_B:
                y = y + load(b_ptr + col, inside, 0.0, "evict_last", EVEN).to(tl.float32)
            store(y_row + col, y, inside, "evict_first", EVEN)


SPLIT_KERNEL = Kernel(_norm_split)
PARTS_KERNEL = Kernel(_norm_parts)
