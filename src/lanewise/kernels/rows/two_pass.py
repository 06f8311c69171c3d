"""Rows cut into parts that are walked twice: a cluster for each row, little in registers, the part waits in L1.

Each program of the cluster walks its part block by block and gathers what it adds to the row's statistics, the programs
exchange that through shared memory (`lanewise.kernels.rows.clusters`), and each walks its part again, backwards, mostly
from L1. What a multiprocessor has on its way is then bounded by L1 and not by its registers. Formulas, layouts of
tensors and dtypes are those of `lanewise.kernels.rows.norm_forward` and `lanewise.kernels.rows.softmax`; phases as in
`lanewise.kernels.rows.row_layout`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel
from lanewise.kernels.rows.clusters import begin, exchange, ready, received
from lanewise.kernels.rows.row_layout import add_pairs, first_mean, load, merged_moments, store
from lanewise.kernels.rows.softmax_kernels import LOG2E, merged, scaled, with_block

__all__ = ["NORM_KERNEL", "SOFTMAX_KERNEL"]


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
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    EVEN: tl.constexpr,
    PHASE: tl.constexpr,
):
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


@triton.jit
def _softmax_parts(
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
    INNER: tl.constexpr,
    EVEN: tl.constexpr,
    PHASE: tl.constexpr,
):
    """INNER columns at a time as two blocks, which share a rescaling of the sums."""
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    first_col = part * BLOCK
    HALF: tl.constexpr = INNER // 2
    at = tl.arange(0, 2)[:, None] * HALF + tl.arange(0, HALF)[None, :]
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    x_row, y_row, mask_row = x_ptr + row * x_stride, y_ptr + row * cols, row * mask_stride
    here = stats_ptr + row * (2 * PARTS)
    if PHASE == 0:
        begin()
    if PHASE != 2:
        top = tl.full([HALF], float("-inf"), tl.float32)
        weight = tl.zeros([HALF], tl.float32)
        for step in tl.range(0, BLOCK, INNER, num_stages=1):
            col = first_col + step + at
            raw = load(x_row + col, col < cols, float("-inf"), "evict_last", EVEN)
            x = scaled(raw, mask_ptr, mask_row + col, col < cols, SCALE, HAS_MASK)
            top, weight = with_block(x, top, weight)
        highest, total = merged(top, weight)
    if PHASE == 1:
        tl.store(here + part, highest)
        tl.store(here + PARTS + part, total)
    if PHASE != 1:
        if PHASE == 0:
            ready()
            where = exchange(highest, total, 0, PARTS)
            tops = tl.where(known, received(where, parts, 0), float("-inf"))
            sums = tl.where(known, received(where, parts, 1), 0.0)
        else:
            tops = tl.load(here + parts, mask=known, other=float("-inf"))
            sums = tl.load(here + PARTS + parts, mask=known, other=0.0)
        best, whole = merged(tops, sums)
        for back in tl.range(0, BLOCK, INNER, num_stages=1):
            col = first_col + (BLOCK - INNER) - back + at
            raw = load(x_row + col, col < cols, float("-inf"), "evict_first", EVEN)
            x = scaled(raw, mask_ptr, mask_row + col, col < cols, SCALE, HAS_MASK)
            store(y_row + col, tl.exp2((x - best) * LOG2E) * (1.0 / whole), col < cols, "evict_first", EVEN)


NORM_KERNEL = Kernel(_norm_parts)
SOFTMAX_KERNEL = Kernel(_softmax_parts)
