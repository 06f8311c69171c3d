"""The backward kernels behind `layer_norm`, `rms_norm` and their fused residual additions.

With g = dy * w and xhat the normalised x: `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))` (RMSNorm without the mean
of g), `dw = sum over rows of dy * xhat`, `db = sum over rows of dy`. Each program adds up dw and db of its rows in fp32
and a second launch adds the programs in a fixed order: no atomics, bit-equal between runs.

Bytes: dy and x read and dx written once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.launcher import Kernel, Launch, NoRoomError, Remembered, clusters, direct, sm_count
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.rows.clusters import again, begin, exchange, ready, received
from lanewise.kernels.rows.row_layout import Layout, add_pairs, as_rows, next_power_of_2, part_of_row, split_meta

__all__ = ["NormGrads", "backward_layout", "norm_backward"]

_WIDEST_BACKWARD = 16384  # columns whose weight gradient one program can keep in registers


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
    cols,
    dy_stride,
    ds_stride,
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
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if NEED_W:
        dw = tl.zeros([ROWS, BLOCK], tl.float32)
    if NEED_B:
        db = tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0, eviction_policy="evict_first")
        x = tl.load(x_ptr + row * cols + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
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
        dx = g - xhat * (tl.sum(g * xhat, axis=1)[:, None] / cols)
        if not RMS:
            dx = dx - tl.sum(g, axis=1)[:, None] / cols
        dx = dx * rstd
        if ADD:
            dx += tl.load(ds_ptr + row * ds_stride + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")
        if NEED_W:
            dw += dy * xhat
        if NEED_B:
            db += dy
    at = tl.program_id(0).to(tl.int64) * cols + tl.arange(0, BLOCK)
    if NEED_W:
        tl.store(dw_ptr + at, tl.sum(dw, axis=0), mask=tl.arange(0, BLOCK) < cols)
    if NEED_B:
        tl.store(db_ptr + at, tl.sum(db, axis=0), mask=tl.arange(0, BLOCK) < cols)


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
    cols,
    dy_stride,
    ds_stride,
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
    within = col < cols
    parts = tl.arange(0, PARTS_2)
    known = parts < PARTS
    step = tl.num_programs(0) // PARTS
    if PARTS > 1:
        begin()
    if HAS_W:
        w_raw = tl.load(w_ptr + col, mask=within, other=0.0)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    dy_ahead = part_of_row(dy_ptr, group, rows, dy_stride, col, within, 0.0, POLICY)
    x_ahead = part_of_row(x_ptr, group, rows, cols, col, within, 0.0, POLICY)
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
            dy_ahead = part_of_row(dy_ptr, after, rows, dy_stride, col, within, 0.0, POLICY)
            x_ahead = part_of_row(x_ptr, after, rows, cols, col, within, 0.0, POLICY)
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
        along = along / cols
        plain = plain / cols
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
            dx += part_of_row(ds_ptr, r, rows, ds_stride, col, within, 0.0, POLICY).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=within, eviction_policy=POLICY)
        if NEED_W:
            dw += dy * xhat
        if NEED_B:
            db += dy
        if not AHEAD:
            dy_ahead = part_of_row(dy_ptr, after, rows, dy_stride, col, within, 0.0, POLICY)
            x_ahead = part_of_row(x_ptr, after, rows, cols, col, within, 0.0, POLICY)
            rstd_ahead = tl.load(rstd_ptr + after, mask=after < rows, other=0.0)
            if not RMS:
                mean_ahead = tl.load(mean_ptr + after, mask=after < rows, other=0.0)
    at = group.to(tl.int64) * cols + col
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
    cols,
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
        inside = (program < programs) & (col < cols)
        if NEED_W:
            dw += tl.load(dw_ptr + program * cols + col, mask=inside, other=0.0)
        if NEED_B:
            db += tl.load(db_ptr + program * cols + col, mask=inside, other=0.0)
    out = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if NEED_W:
        tl.store(dw_out + out, tl.sum(dw, axis=0).to(dw_out.dtype.element_ty), mask=out < cols)
    if NEED_B:
        tl.store(db_out + out, tl.sum(db, axis=0).to(db_out.dtype.element_ty), mask=out < cols)


@triton.jit
def _norm_backward_sums(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    rows,
    cols,
    dy_stride,
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
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        within = col < cols
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=within, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * cols + col, mask=within, other=0.0).to(tl.float32)
        if HAS_W:
            dy = dy * tl.load(w_ptr + col, mask=within, other=0.0, eviction_policy="evict_last").to(tl.float32)
        along += dy * tl.where(within, (x - mean) * rstd, 0.0)
        plain += dy
    tl.store(sums_ptr + row * 2, tl.sum(plain, axis=0) / cols)
    tl.store(sums_ptr + row * 2 + 1, tl.sum(along, axis=0) / cols)


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
    cols,
    dy_stride,
    ds_stride,
    RMS: tl.constexpr,
    HAS_W: tl.constexpr,
    NEED_W: tl.constexpr,
    NEED_B: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx, and this row group's dw and db, of one block of columns: rows too long for one program."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = col < cols
    if HAS_W:
        w = tl.load(w_ptr + col, mask=within, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    group = tl.program_id(1)
    for r in range(group, rows, tl.num_programs(1)):
        row = r + group.to(tl.int64) * 0
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=within, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * cols + col, mask=within, other=0.0).to(tl.float32)
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
            dx += tl.load(ds_ptr + row * ds_stride + col, mask=within, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=within)
        dw += dy * xhat
        db += dy
    at = group.to(tl.int64) * cols + col
    if NEED_W:
        tl.store(dw_ptr + at, dw, mask=within)
    if NEED_B:
        tl.store(db_ptr + at, db, mask=within)


BACKWARD_KERNEL = Kernel(_norm_backward)
BACKWARD_SPLIT_KERNEL = Kernel(_norm_backward_split)
ADD_UP_KERNEL = Kernel(_add_up)
SUMS_KERNEL = Kernel(_norm_backward_sums)
COLUMNS_KERNEL = Kernel(_norm_backward_columns)


class NormGrads(NamedTuple):
    dx: torch.Tensor
    dw: torch.Tensor | None
    db: torch.Tensor | None


def norm_backward(
    dy: torch.Tensor,
    ds: torch.Tensor | None,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    rms: bool,
    need_w: bool,
    need_b: bool,
    traced: bool = False,
) -> NormGrads:
    """Gradients from `dy` (any layout) and, for a fused addition, from the gradient `ds` of the returned sum.

    `x` is what was normalised, contiguous. dw and db have w's dtype.
    """
    kind = (rms, need_w, need_b)
    if not traced:
        for quick in _RECENT_BACKWARD.get(kind):
            grads = quick(dy, ds, x, w, mean, rstd)
            if grads is not None:
                return NormGrads(*grads)
    dx = torch.empty_like(x)
    flat_x = as_rows(x)
    grad = as_rows(dy)
    rows, cols = grad.shape
    dw = torch.empty(cols, dtype=x.dtype, device=x.device) if need_w else None
    db = torch.empty(cols, dtype=x.dtype, device=x.device) if need_b else None
    if rows == 0 or cols == 0:
        for tensor in (dw, db):
            if tensor is not None:
                tensor.zero_()
        return NormGrads(dx, dw, db)
    more = grad if ds is None else as_rows(ds)
    weight = flat_x if w is None else w
    scalars = (rows, cols, grad.stride(0), more.stride(0))
    flags = {"RMS": rms, "HAS_W": w is not None, "NEED_W": need_w, "NEED_B": need_b, "ADD": ds is not None}
    key = (scalars, *flags.values(), dy.dtype, x.dtype, None if ds is None else ds.dtype, x.device.index)

    def go(kernel: Kernel, tensors: tuple[torch.Tensor, ...], launch: Launch) -> Remembered | None:
        if traced:
            kernel.trace(tensors, launch)
            return None
        return kernel((key, launch.grid), tensors, lambda: launch)

    first = second = None
    shape = tuning.pick("norm_backward", (x.dtype, int(cols), rms), backward_layout(int(cols), x.element_size(), rms))
    if traced or (shape.parts > 1 and (not clusters(x.device) or shape in _NO_ROOM)):
        shape = _whole_rows(int(cols), rms, x.element_size())

    def partial(programs: int) -> tuple[torch.Tensor, torch.Tensor]:
        def room(needed: bool) -> torch.Tensor:
            return torch.empty((programs, cols), dtype=torch.float32, device=x.device) if needed else dx

        return room(need_w), room(need_b)

    if shape is None or shape.parts == 0:
        blocks = -(-cols // _COLUMNS)
        programs = max(1, min(rows, 4 * sm_count(x.device) // blocks))
        partial_w, partial_b = partial(programs)
        sums = torch.empty((rows, 2), dtype=torch.float32, device=x.device)
        go(
            SUMS_KERNEL,
            (grad, flat_x, weight, mean, rstd, sums),
            Launch((rows,), scalars[:3], {"RMS": rms, "HAS_W": w is not None, "BLOCK": 8192}, 16),
        )
        go(
            COLUMNS_KERNEL,
            (grad, flat_x, weight, more, mean, rstd, sums, dx, partial_w, partial_b),
            Launch((blocks, programs), scalars, {**flags, "BLOCK": _COLUMNS}, 8),
        )
    elif shape.parts > 1 or (shape.lean and not traced and direct()):
        programs = _walkers(rows, shape, x.device)
        partial_w, partial_b = partial(programs)
        bound = min(65536 // (shape.warps * 32 * shape.persistent) // 8 * 8, 255)
        meta = {**flags, **split_meta(shape)}
        cluster = shape.parts if shape.parts > 1 else 0
        launch = Launch((programs,), scalars, meta, shape.warps, cluster=cluster, max_registers=bound)
        try:
            first = go(
                BACKWARD_SPLIT_KERNEL, (grad, flat_x, weight, more, mean, rstd, dx, partial_w, partial_b), launch
            )
        except NoRoomError:
            _NO_ROOM.add(shape)
            return norm_backward(dy, ds, x, w, mean, rstd, rms, need_w, need_b)
    else:
        tiles = -(-rows // shape.rows)
        programs = min(tiles, (shape.persistent or 2) * sm_count(x.device))
        partial_w, partial_b = partial(programs)
        first = go(
            BACKWARD_KERNEL,
            (grad, flat_x, weight, more, mean, rstd, dx, partial_w, partial_b),
            Launch(
                (programs,),
                scalars,
                {**flags, "ROWS": shape.rows, "BLOCK": shape.block, "STAGES": shape.stages},
                shape.warps,
                shape.stages,
            ),
        )
    if need_w or need_b:
        second = go(
            ADD_UP_KERNEL,
            (partial_w, partial_b, dx if dw is None else dw, dx if db is None else db),
            _adding_up(programs, cols, need_w, need_b),
        )
    if first is not None and grad.data_ptr() == dy.data_ptr() and (ds is None or more.data_ptr() == ds.data_ptr()):
        wanted = [t for t in (dw, db) if t is not None]
        partial = [t for t, needed in ((partial_w, need_w), (partial_b, need_b)) if needed]
        at_w, at_b = ~1 if need_w else ~0, ~(1 + need_w) if need_b else ~0
        to_w, to_b = ~(1 + len(wanted)) if need_w else ~0, ~(1 + len(wanted) + need_w) if need_b else ~0
        steps = [Step(first, (0, 2, 3 if w is not None else 2, 0 if ds is None else 1, 4, 5, ~0, to_w, to_b))]
        if wanted:
            steps.append(Step(second, (to_w, to_b, at_w, at_b)))
        returned = (0, ~at_w if need_w else None, ~at_b if need_b else None)
        _RECENT_BACKWARD.keep(kind, (dy, ds, x, w, mean, rstd), [dx, *wanted, *partial], steps, returned)
    return NormGrads(dx, dw, db)


def _adding_up(programs: int, cols: int, need_w: bool, need_b: bool) -> Launch:
    """All programs' rows at once, as far as the registers go (`programs` is not a number while torch.compile traces)."""
    most = 256 if need_w and need_b else 512
    height = min(max(next_power_of_2(programs), 32), most) if isinstance(programs, int) else most
    meta = {"NEED_W": need_w, "NEED_B": need_b, "HEIGHT": height, "BLOCK": 16}
    return Launch((-(-cols // 16),), (programs, cols), meta, 8)


_RECENT_BACKWARD = Recent("norm_backward", counted=False)


_NO_ROOM: set[Layout] = set()
_COLUMNS = 2048  # columns of a block where a row is walked twice


def _walkers(rows: int, shape: Layout, device: torch.device) -> int:
    """Clusters that walk the rows together, evenly loaded: `shape.persistent` programs on each multiprocessor.

    Their number decides how much room the weights' gradients take, so it is fixed before the kernel is compiled, with
    a bound on the registers that makes them fit.
    """
    room = sm_count(device)
    if shape.parts > 1:
        # A cluster stays within a group of multiprocessors, of 16 or 18 on Hopper.
        room = room // 16 * 16 or room
    most = max(shape.persistent * room // shape.parts, 1)
    return -(-rows // -(-rows // most))


def backward_layout(cols: int, itemsize: int, rms: bool) -> Layout:
    """Whole rows while their weight gradients fit the registers of a program; a cluster for each row of LayerNorm to
    16384 columns; rows walked twice beyond."""
    whole = _whole_rows(cols, rms, itemsize)
    if whole is not None:
        return whole
    if cols <= _WIDEST_BACKWARD:
        part = 16384 // itemsize
        return Layout(1, part, -(-cols // part), 16, 1)
    return Layout(1, _COLUMNS, 0, 8)


def _whole_rows(cols: int, rms: bool, itemsize: int) -> Layout | None:
    """Several short rows with four warps, one with 16 to 32 elements a thread; None for rows too long."""
    block = max(next_power_of_2(cols), 16)
    if cols > (_WIDEST_BACKWARD if rms else _WIDEST_BACKWARD // 2):
        return None
    if block < 1024:
        return Layout(2048 // block, block, 1, 4, 4)
    lean = not rms and itemsize == 2
    if block == 1024:
        return Layout(1, block, 1, 2, 8, 2 if lean else 1, lean=lean)
    if block <= 4096:
        return Layout(1, block, 1, 8, 2, 2 if lean else 1, lean=lean)
    return Layout(1, block, 1, 16, 1)
