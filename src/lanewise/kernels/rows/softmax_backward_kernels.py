"""The backward kernels of `softmax`: whole rows, rows walked twice, rows in parts.

Formulas, limits and bytes: `lanewise.kernels.rows.softmax`.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.kernels.dispatch.launcher import Kernel
from lanewise.kernels.rows.clusters import again, begin, exchange, ready, received
from lanewise.kernels.rows.row_blocks import in_steps, load, part_of_row, store

__all__ = ["BACKWARD_ROWS_KERNEL", "BACKWARD_SPLIT_KERNEL", "BACKWARD_TWICE_KERNEL"]


@triton.jit
def _softmax_backward_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    rows,
    cols,
    dy_stride,
    SCALE: tl.constexpr,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LEAN: tl.constexpr,
    STREAM: tl.constexpr,
    FULL: tl.constexpr,
    EVEN: tl.constexpr,
):
    cols, dy_stride = in_steps(cols, ALIGN), in_steps(dy_stride, ALIGN)
    POLICY: tl.constexpr = "evict_first" if STREAM else ""
    col = tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = col < cols if FULL else (row < rows) & (col < cols)
    dy_raw = load(dy_ptr + row * dy_stride + col, inside, 0.0, POLICY, EVEN)
    y_raw = load(y_ptr + row * cols + col, inside, 0.0, POLICY, EVEN)
    dy, y = dy_raw.to(tl.float32), y_raw.to(tl.float32)
    dot = tl.sum(dy * y, axis=1)[:, None]
    if LEAN:
        dy, y = again(dy_raw).to(tl.float32), again(y_raw).to(tl.float32)
    store(dx_ptr + row * cols + col, (dy - dot) * y * SCALE, inside, POLICY, EVEN)


@triton.jit
def _softmax_backward_twice(
    dy_ptr,
    y_ptr,
    dx_ptr,
    rows,
    cols,
    dy_stride,
    SCALE: tl.constexpr,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    """ROWS rows, block by block: the sum of dy * y on the way forth, results on the way back."""
    cols, dy_stride = in_steps(cols, ALIGN), in_steps(dy_stride, ALIGN)
    at = tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
    known = row < rows
    dy_row, y_row, dx_row = dy_ptr + row * dy_stride, y_ptr + row * cols, dx_ptr + row * cols
    along = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in tl.range(0, cols, BLOCK, num_stages=1):
        col = start + at
        inside = known & (col < cols)
        dy = load(dy_row + col, inside, 0.0, "evict_last", EVEN).to(tl.float32)
        along += dy * load(y_row + col, inside, 0.0, "evict_last", EVEN).to(tl.float32)
    dot = tl.sum(along, axis=1)[:, None]
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK, num_stages=1):
        col = last - back + at
        inside = known & (col < cols)
        dy = load(dy_row + col, inside, 0.0, "evict_first", EVEN).to(tl.float32)
        y = load(y_row + col, inside, 0.0, "evict_first", EVEN).to(tl.float32)
        store(dx_row + col, (dy - dot) * y * SCALE, inside, "evict_first", EVEN)


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
    ALIGN: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_2: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HOLD: tl.constexpr,
    STREAM: tl.constexpr,
    PHASE: tl.constexpr,
):
    cols, dy_stride = in_steps(cols, ALIGN), in_steps(dy_stride, ALIGN)
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


BACKWARD_ROWS_KERNEL = Kernel(_softmax_backward_rows)
BACKWARD_SPLIT_KERNEL = Kernel(_softmax_backward_split)
BACKWARD_TWICE_KERNEL = Kernel(_softmax_backward_twice)
