"""The forward kernels of `softmax`: whole rows, rows walked twice, rows in parts that are held or walked twice.

Formulas, limits and bytes: `lanewise.kernels.rows.softmax`; how rows in parts are walked:
`lanewise.kernels.rows.norm_cluster_kernels`.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel
from lanewise.kernels.rows.clusters import again, begin, exchange, ready, received
from lanewise.kernels.rows.row_blocks import in_steps, load, part_of_row, store

__all__ = ["PARTS_KERNEL", "ROWS_KERNEL", "SPLIT_KERNEL", "TWICE_KERNEL"]

LOG2E = tl.constexpr(1.4426950408889634)  # pyright: ignore[reportCallIssue]


@triton.jit
def scaled(x, mask_ptr, mask_at, inside, SCALE: tl.constexpr, HAS_MASK: tl.constexpr):
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
def with_block(x, top, weight):
    """Running maxima and sums of exponentials after the blocks x [blocks, columns], column by column."""
    new = tl.maximum(top, tl.max(x, axis=0))
    base = tl.where(new == float("-inf"), 0.0, new)  # nothing finite yet: no exponential may become NaN
    return new, weight * tl.exp2((top - base) * LOG2E) + tl.sum(tl.exp2((x - base[None, :]) * LOG2E), axis=0)


@triton.jit
def merged(tops, sums):
    """The largest of several maxima, and the sum of their sums of exponentials, rescaled to it."""
    best = tl.max(tops, axis=0)
    share = tl.where(tops == float("-inf"), 0.0, tl.exp2((tops - best) * LOG2E))
    return best, tl.sum(sums * share, axis=0)


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
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LEAN: tl.constexpr,
    STREAM: tl.constexpr,
    FULL: tl.constexpr,
    EVEN: tl.constexpr,
):
    cols, x_stride, mask_stride = in_steps(cols, ALIGN), in_steps(x_stride, ALIGN), in_steps(mask_stride, ALIGN)
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    col = tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = col < cols if FULL else (row < rows) & (col < cols)
    raw = load(x_ptr + row * x_stride + col, inside, float("-inf"), POLICY, EVEN)
    x = scaled(raw, mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
    top = tl.max(x, axis=1)[:, None]
    if LEAN:
        x = scaled(again(raw), mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
    e = tl.exp2((x - top) * LOG2E)
    whole = tl.sum(e, axis=1)[:, None]
    store(y_ptr + row * cols + col, e * (1.0 / whole), inside, POLICY, EVEN)


@triton.jit
def _softmax_twice(
    x_ptr,
    mask_ptr,
    y_ptr,
    rows,
    cols,
    x_stride,
    mask_stride,
    SCALE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    ALIGN: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    """One row, TOGETHER blocks at a time: maximum and sum of each of BLOCK columns' own on the way forth (rescaled once
    for the blocks taken together), results on the way back."""
    cols, x_stride, mask_stride = in_steps(cols, ALIGN), in_steps(x_stride, ALIGN), in_steps(mask_stride, ALIGN)
    WIDE: tl.constexpr = TOGETHER * BLOCK
    at = tl.arange(0, TOGETHER)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row, mask_row = x_ptr + row * x_stride, y_ptr + row * cols, row * mask_stride
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    weight = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, cols, WIDE, num_stages=1):
        col = start + at
        raw = load(x_row + col, col < cols, float("-inf"), "evict_last", EVEN)
        x = scaled(raw, mask_ptr, mask_row + col, col < cols, SCALE, HAS_MASK)
        top, weight = with_block(x, top, weight)
    best, whole = merged(top, weight)
    last = (tl.cdiv(cols, WIDE) - 1) * WIDE
    for back in tl.range(0, cols, WIDE, num_stages=1):
        col = last - back + at
        raw = load(x_row + col, col < cols, float("-inf"), "evict_first", EVEN)
        x = scaled(raw, mask_ptr, mask_row + col, col < cols, SCALE, HAS_MASK)
        store(y_row + col, tl.exp2((x - best) * LOG2E) * (1.0 / whole), col < cols, "evict_first", EVEN)


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
    ALIGN: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HOLD: tl.constexpr,
    STREAM: tl.constexpr,
    PHASE: tl.constexpr,
):
    cols, x_stride, mask_stride = in_steps(cols, ALIGN), in_steps(x_stride, ALIGN), in_steps(mask_stride, ALIGN)
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
        x = scaled(raw, mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        here = stats_ptr + row * (2 * PARTS)
        top = tl.max(x, axis=0)
        # A part without any finite entry has no weight; its exponentials must not become NaN here.
        base = tl.where(top == float("-inf"), 0.0, top)
        if PHASE == 0:
            x = scaled(again(raw), mask_ptr, row * mask_stride + col, inside, SCALE, HAS_MASK)
        e = tl.exp2((x - base) * LOG2E)
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
            best, whole = merged(tops, sums)
            # One exponential an element: those of this part are rescaled to the row's maximum. In a row of -inf the
            # difference of the maxima is NaN, and so is each entry, as in PyTorch.
            y = e * (tl.exp2((top - best) * LOG2E) / whole)
            tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy=POLICY)
        if not AHEAD:
            ahead = part_of_row(x_ptr, r + step, rows, x_stride, col, inside, float("-inf"), POLICY)


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
    ALIGN: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
    EVEN: tl.constexpr,
    PHASE: tl.constexpr,
):
    """INNER columns at a time as two blocks, which share a rescaling of the sums."""
    cols, x_stride, mask_stride = in_steps(cols, ALIGN), in_steps(x_stride, ALIGN), in_steps(mask_stride, ALIGN)
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


ROWS_KERNEL = Kernel(_softmax_rows)
TWICE_KERNEL = Kernel(_softmax_twice)
SPLIT_KERNEL = Kernel(_softmax_split)
PARTS_KERNEL = Kernel(_softmax_parts)
