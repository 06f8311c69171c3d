"""Which backward kernels a norm's rows take, with what, and the call kept for the next of its kind.

Formulas and bytes: `lanewise.kernels.rows.norm_backward_kernels`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.launcher import Kernel, Launch, NoRoomError, Remembered, clusters, direct, sm_count
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.rows.norm_backward_kernels import (
    ADD_UP_KERNEL,
    BACKWARD_KERNEL,
    BACKWARD_SPLIT_KERNEL,
    COLUMNS_KERNEL,
    SUMS_KERNEL,
)
from lanewise.kernels.rows.row_layout import Layout, as_rows, next_power_of_2, split_meta

__all__ = ["NormGrads", "backward_layout", "norm_backward"]

_WIDEST_BACKWARD = 16384  # columns whose weight gradient one program can keep in registers


class NormGrads(NamedTuple):
    dx: torch.Tensor
    dw: torch.Tensor | None
    db: torch.Tensor | None


class _Rows(NamedTuple):
    """What the kernels of one call are given: tensors as rows, their sizes and strides, constants, where results go."""

    grad: torch.Tensor
    more: torch.Tensor
    x: torch.Tensor
    weight: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor
    dx: torch.Tensor
    rows: int
    cols: int
    strides: dict[str, int]
    flags: dict[str, bool]
    key: tuple[Any, ...]
    traced: bool

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        return self.grad, self.x, self.weight, self.more, self.mean, self.rstd

    def launch(self, kernel: Kernel, tensors: tuple[torch.Tensor, ...], launch: Launch) -> Remembered | None:
        """Launch a kernel; what is returned is worth keeping."""
        if self.traced:
            kernel.trace(tensors, launch)
            return None
        return kernel((self.key, launch.grid), tensors, lambda: launch)

    def partial_sums(self, programs: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for each program's dw and db; `dx` stands for one that nobody asked for."""

        def room(needed: bool) -> torch.Tensor:
            shape, device = (programs, self.cols), self.dx.device
            return torch.empty(shape, dtype=torch.float32, device=device) if needed else self.dx

        return room(self.flags["NEED_W"]), room(self.flags["NEED_B"])


class _Partial(NamedTuple):
    """dx is on its way, and dw and db as sums of each program's rows; `launched`: the launch, if it is worth keeping."""

    programs: int
    dw: torch.Tensor
    db: torch.Tensor
    launched: Remembered | None


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
    grad = as_rows(dy)
    rows, cols = grad.shape
    dw = torch.empty(cols, dtype=x.dtype, device=x.device) if need_w else None
    db = torch.empty(cols, dtype=x.dtype, device=x.device) if need_b else None
    if rows == 0 or cols == 0:
        for tensor in (dw, db):
            if tensor is not None:
                tensor.zero_()
        return NormGrads(dx, dw, db)
    flat_x = as_rows(x)
    more = grad if ds is None else as_rows(ds)
    strides = {"COLS": int(cols), "DY_STRIDE": int(grad.stride(0)), "DS_STRIDE": int(more.stride(0))}
    flags = {"RMS": rms, "HAS_W": w is not None, "NEED_W": need_w, "NEED_B": need_b, "ADD": ds is not None}
    key = (
        rows,
        *strides.values(),
        *flags.values(),
        dy.dtype,
        x.dtype,
        None if ds is None else ds.dtype,
        x.device.index,
    )
    weight = flat_x if w is None else w
    given = _Rows(grad, more, flat_x, weight, mean, rstd, dx, rows, int(cols), strides, flags, key, traced)
    shape = _shape(x, int(cols), rms, traced)
    try:
        partial = _rows_twice(given) if shape is None or shape.parts == 0 else _rows_once(given, shape)
    except NoRoomError:
        assert shape is not None
        _NO_ROOM.add(shape)
        return norm_backward(dy, ds, x, w, mean, rstd, rms, need_w, need_b)
    second = None
    if need_w or need_b:
        sums = (partial.dw, partial.db, dx if dw is None else dw, dx if db is None else db)
        second = given.launch(ADD_UP_KERNEL, sums, _adding_up(partial.programs, cols, need_w, need_b))
    if partial.launched is not None and _same_memory(grad, dy) and (ds is None or _same_memory(more, ds)):
        _keep(kind, (dy, ds, x, w, mean, rstd), NormGrads(dx, dw, db), partial, second)
    return NormGrads(dx, dw, db)


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Not asked while traced: fake tensors have none."""
    return one.data_ptr() == other.data_ptr()


def _shape(x: torch.Tensor, cols: int, rms: bool, traced: bool) -> Layout | None:
    """How a row is spread: as measured for this card, or whole where a cluster is not to be had."""
    shape = tuning.pick("norm_backward", (x.dtype, cols, rms), backward_layout(cols, x.element_size(), rms))
    if traced or (shape.parts > 1 and (not clusters(x.device) or shape in _NO_ROOM)):
        return _whole_rows(cols, rms, x.element_size())
    return shape


def _rows_twice(given: _Rows) -> _Partial:
    """Rows too long for a program: the sums of each row, then dx by blocks of columns."""
    rows, device = given.rows, given.dx.device
    blocks = -(-given.cols // _COLUMNS)
    programs = max(1, min(rows, 4 * sm_count(device) // blocks))
    dw, db = given.partial_sums(programs)
    sums = torch.empty((rows, 2), dtype=torch.float32, device=device)
    constants = {**given.strides, **given.flags}
    few = {name: constants[name] for name in ("COLS", "DY_STRIDE", "RMS", "HAS_W")}
    given.launch(
        SUMS_KERNEL,
        (given.grad, given.x, given.weight, given.mean, given.rstd, sums),
        Launch((rows,), (rows,), {**few, "BLOCK": 8192}, 16),
    )
    given.launch(
        COLUMNS_KERNEL,
        (*given.inputs, sums, given.dx, dw, db),
        Launch((blocks, programs), (rows,), {**constants, "BLOCK": _COLUMNS}, 8),
    )
    return _Partial(programs, dw, db, None)


def _rows_once(given: _Rows, shape: Layout) -> _Partial:
    """Rows of one program, or of a cluster of them, each read once.

    Raises:
        NoRoomError: the card cannot hold such a cluster.
    """
    rows, device = given.rows, given.dx.device
    constants = {**given.strides, **given.flags}
    if shape.parts > 1 or (shape.lean and not given.traced and direct()):
        kernel, programs = BACKWARD_SPLIT_KERNEL, _walkers(rows, shape, device)
        bound = min(65536 // (shape.warps * 32 * shape.persistent) // 8 * 8, 255)
        meta = {**constants, **split_meta(shape)}
        cluster = shape.parts if shape.parts > 1 else 0
        launch = Launch((programs,), (rows,), meta, shape.warps, cluster=cluster, max_registers=bound)
    else:
        kernel, programs = BACKWARD_KERNEL, min(-(-rows // shape.rows), (shape.persistent or 2) * sm_count(device))
        meta = {**constants, "ROWS": shape.rows, "BLOCK": shape.block, "STAGES": shape.stages}
        launch = Launch((programs,), (rows,), meta, shape.warps, shape.stages)
    dw, db = given.partial_sums(programs)
    return _Partial(programs, dw, db, given.launch(kernel, (*given.inputs, given.dx, dw, db), launch))


def _keep(
    kind: tuple[bool, bool, bool],
    inputs: tuple[torch.Tensor | None, ...],
    grads: NormGrads,
    partial: _Partial,
    second: Remembered | None,
) -> None:
    """Keep a call that has just been made for the next of its kind: one launch, and one more where sums are added up."""
    _, need_w, need_b = kind
    _, ds, _, w, _, _ = inputs
    wanted = [t for t in grads[1:] if t is not None]
    room = [t for t, needed in ((partial.dw, need_w), (partial.db, need_b)) if needed]
    at_w, at_b = ~1 if need_w else ~0, ~(1 + need_w) if need_b else ~0
    to_w, to_b = ~(1 + len(wanted)) if need_w else ~0, ~(1 + len(wanted) + need_w) if need_b else ~0
    order = (0, 2, 3 if w is not None else 2, 0 if ds is None else 1, 4, 5, ~0, to_w, to_b)
    steps = [Step(partial.launched, order)]
    if wanted:
        steps.append(Step(second, (to_w, to_b, at_w, at_b)))
    returned = (0, ~at_w if need_w else None, ~at_b if need_b else None)
    _RECENT_BACKWARD.keep(kind, inputs, [grads.dx, *wanted, *room], steps, returned)


def _adding_up(programs: Any, cols: int, need_w: bool, need_b: bool) -> Launch:
    """All programs' rows at once, as far as the registers go (`programs` is not a number while torch.compile traces)."""
    most = 256 if need_w and need_b else 512
    height = min(max(next_power_of_2(programs), 32), most) if isinstance(programs, int) else most
    meta = {"COLS": int(cols), "NEED_W": need_w, "NEED_B": need_b, "HEIGHT": height, "BLOCK": 16}
    return Launch((-(-cols // 16),), (programs,), meta, 8)


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
