"""How rows are laid out, and how programs that share a row are launched.

A row that fits one program is kept in registers: one read, one write. A longer row is walked twice, block by block,
backwards the second time so that what was read last is still in L1 (the rest comes from L2 or, when the rows in flight
exceed L2, from memory), or it is cut into parts; the programs of one row run as a cluster and exchange two floats
through shared memory (`lanewise.kernels.rows.clusters`), so that the row still moves through memory once in each direction.
The partial results are combined in a fixed order: deterministic.

Where clusters are not to be had (tracing by torch.compile, the interpreter, cards before Hopper, rows of more parts
than a cluster holds) the same kernel runs as two launches, statistics and then output, which reads the row twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Literal, get_args

import torch

from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch, NoRoomError, Remembered, clusters, sm_count
from lanewise.kernels.rows.clusters import MOST_PARTS

__all__ = [
    "APPLY",
    "FUSED",
    "STATS",
    "WIDEST_ROW",
    "Crowd",
    "Layout",
    "alignment",
    "as_rows",
    "crowd_of",
    "exchange_buffers",
    "launch_split",
    "layout",
    "next_power_of_2",
    "parts_layout",
    "pick_layout",
    "read_one_by_one",
    "rows_launch",
    "split_meta",
    "twice_launch",
    "use_layout",
]

FUSED, STATS, APPLY = 0, 1, 2
LEAN = not INTERPRETED  # written in PTX

WIDEST_ROW = 4096  # up to here a row is one program's whatever the tuner says


def next_power_of_2(n: int) -> int:
    return 1 << max(int(n) - 1, 0).bit_length()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row of `cols` elements is spread: `rows` rows a program, `block` columns, `parts` programs a row.

    `parts` = 0 walks the row twice, `rows` rows of `block` columns at a time. For a row in parts `rows` is how many
    rows a cluster walks one after the other.
    """

    rows: int
    block: int
    parts: int
    warps: int
    persistent: int = 0
    """Programs per multiprocessor that walk the tiles; 0 launches one program per tile. For a row in parts: 0 launches
    a cluster for each row, anything else as many as fit, which walk the rows and keep the weights."""
    stages: int = 1
    """Tiles in flight through shared memory while walking (software pipelining); 1 turns it off. For a row in parts,
    2 loads the next row into registers before this one is finished. For a row that is walked twice, blocks that are
    taken together (softmax only)."""
    registers: int = 0
    """Bound on the registers of a thread; 0 leaves it to the compiler."""
    lean: bool = False
    """Keep the row in half precision across the reductions and convert it again after each, for fewer registers."""
    stream: bool = True
    """Mark loads and stores as the first to leave L2."""
    early: bool = False
    """Load a norm's weights with the row and not after its reductions (whole rows only)."""
    once: bool = False
    """Find LayerNorm's mean and variance in one reduction and not in two (whole rows of half precision, one at a
    time)."""
    inner: int = 0
    """Columns of a part that a program walks at a time, twice; 0 keeps the part in registers (rows in parts only)."""


Crowd = Literal["1/8", "1", "3", "32", "more"]
"""At most how many rows a multiprocessor has to do. Of few rows the time is latency, of many it is what they move."""


def crowd_of(rows: int, device: torch.device) -> Crowd:
    """How `rows` rows crowd the multiprocessors of a device."""
    each = rows / sm_count(device)
    return "1/8" if each <= 1 / 8 else "1" if each <= 1 else "3" if each <= 3 else "32" if each <= 32 else "more"


def read_one_by_one(cols: int, itemsize: int) -> bool:
    """Whether rows that follow each other begin anywhere, so that values cannot be read 16 bytes at a time."""
    return cols * itemsize % 16 != 0


def use_layout(kernel: str, key: tuple[Any, ...], shape: Layout) -> None:
    """Use `shape` in this process for rows of one type and length, however many there are."""
    for crowd in get_args(Crowd):
        tuning.override(kernel, (*key, crowd), shape)


def pick_layout(kernel: str, key: tuple[Any, ...], default: str, x: torch.Tensor, cols: int, traced: bool) -> Layout:
    """The layout measured for this card or else the default one, with whole rows if torch.compile is tracing (its
    launches have no clusters)."""
    if traced:
        return layout(cols, default, x.element_size(), whole=True)
    crowd = crowd_of(x.numel() // cols, x.device)
    return tuning.pick(kernel, (*key, crowd), layout(cols, default, x.element_size(), crowd=crowd))


def layout(
    cols: int, kernel: str = "softmax", itemsize: int = 2, *, whole: bool = False, crowd: Crowd = "more"
) -> Layout:
    """Default layout for `cols` columns: what was fastest, or within noise of it (docs/kernels.md).

    `whole` keeps a row to one program for as long as that is of use. Most rows to 16384 columns are held in registers,
    to 32768 they are walked twice, longer rows are shared by a cluster of programs.
    """
    cols = int(cols)  # under tracing: the width is part of the model, the compiled code holds for this one
    block = max(next_power_of_2(cols), 16)
    mean, add, back = kernel == "layer_norm", kernel == "add_norm", kernel == "softmax_backward"
    scattered = read_one_by_one(cols, itemsize)
    own = None if crowd == "more" or back else _uncrowded(cols, block, kernel, itemsize, crowd)
    if own is not None:
        return own
    if block <= 256 or (block == 512 and not scattered):
        return Layout(2048 // block, block, 1, 4, stream=False)
    if block == 512 and kernel == "softmax" and crowd == "more":
        return Layout(4, block, 1, 2, stream=False)
    if block == 512 and mean and itemsize == 2 and crowd == "more":
        return Layout(4, block, 1, 1, stream=False)
    if scattered and block <= 1024:
        return Layout(1024 // block, block, 1, 1, stream=False)  # instructions are the limit: no waits between warps
    if block <= 2048:
        warps = 4 if add or back or (block == 2048 and not mean) else 1 if mean and block == 1024 else 2
        return Layout(1, block, 1, warps, stream=False)
    if block == 8192 and kernel == "rms_norm" and cols % 4096 == 0:
        return Layout(1, 4096, 0, 16)
    if block == 8192 and mean and itemsize == 4:
        return Layout(1, block, 1, 4, stream=False)
    if block == 4096 and mean and itemsize == 4:
        return Layout(1, block, 1, 16, stream=False)
    if block <= 8192:
        wide, narrow = add and block == 8192, mean and block == 4096
        return Layout(1, block, 1, 4 if narrow else 16 if wide or back else 8, stream=False, early=wide, once=narrow)
    if block == 16384 and mean:
        return Layout(1, 4096, 0, 16)
    if block == 16384 and kernel == "rms_norm" and itemsize == 4:
        return Layout(1, 2048, 0, 16)
    if block == 16384:
        lean = "softmax" in kernel or (kernel == "rms_norm" and cols < block)
        return Layout(1, block, 1, 8 if lean else 16, lean=lean, stream=False, early=add)
    if block == 32768 and (add or back):
        return Layout(1, block, 1, 16, stream=False)
    if block == 32768 or (whole and block == 65536):
        return Layout(1, 8192, 0, 32) if kernel == "rms_norm" or add else Layout(1, 4096, 0, 16, stages=2)
    if scattered and kernel == "rms_norm":
        # More values in flight: whole rows in half precision, parts as long as those of half precision in fp32.
        return Layout(1, 8192, 0, 32) if itemsize == 2 and block == 65536 else parts_layout(cols, kernel)
    return parts_layout(cols, kernel, itemsize)


def _uncrowded(cols: int, block: int, kernel: str, itemsize: int, crowd: Crowd) -> Layout | None:
    """The layout of fewer rows, where it is not that of many: more threads for each, so that more is under way at a
    time, and weights that are read before they are needed."""
    latency, scattered = crowd in ("1/8", "1"), read_one_by_one(cols, itemsize)
    if crowd == "1/8" and cols > 32768 and kernel != "add_norm":
        return _few_long(cols, block, kernel, itemsize)
    if kernel == "softmax":
        if block <= 256:
            return Layout(256 // block, block, 1, 4, stream=False)
        if block == 512 and scattered and (crowd != "32" or itemsize == 4):
            return Layout(1, block, 1, 4 if latency else 1, stream=False)
        if block == 512 and scattered:
            return Layout(2, block, 1, 2, stream=False)
        if block == 65536 and scattered and itemsize == 2 and crowd == "1":
            return Layout(1, 8192, 0, 32)
        return Layout(1, block, 1, 8 if crowd == "1/8" else 16, stream=False) if block == 8192 and latency else None
    if block <= 256:
        each = 512 if block == 32 and kernel == "layer_norm" and crowd == "32" else 256
        return Layout(max(each // block, 1), block, 1, 4, stream=False, early=True)
    if block <= 1024 and crowd != "32":
        return Layout(1, block, 1, 1 if scattered and block == 512 else 4, stream=False, early=True)
    if block == 1024 and kernel == "layer_norm" and itemsize == 2 and not scattered:
        return Layout(2, block, 1, 4, stream=False)
    if block == 1024 and not scattered:
        return Layout(1, block, 1, 4 if kernel == "rms_norm" else 2, stream=False, early=True)
    if 2048 <= block <= 4096 and (crowd != "32" or itemsize == 4 or kernel == "rms_norm"):
        return Layout(1, block, 1, 8, stream=False, early=True)
    if block == 8192 and kernel == "layer_norm" and itemsize == 4 and crowd == "32":
        return Layout(1, block, 1, 16, stream=False)
    if block == 8192 and (latency or kernel != "add_norm"):
        return Layout(1, block, 1, 16 if kernel == "add_norm" else 8, stream=False, early=True)
    if block == 16384 and (latency or (kernel == "rms_norm" and itemsize == 4 and crowd == "32")):
        return Layout(1, block, 1, 16 if kernel == "layer_norm" else 32, stream=False, early=True)
    if block == 16384 and kernel == "rms_norm" and crowd == "3":
        return Layout(1, 4096, 0, 16)
    if block == 16384 and kernel == "layer_norm" and itemsize == 4 and crowd == "3":
        return Layout(1, 2048, 0, 16)
    if block == 65536 and scattered and itemsize == 2 and (kernel, crowd) in _WHOLE_LONG:
        return Layout(1, block, 1, 32, stream=False, lean=True)
    return None


_WHOLE_LONG = {("rms_norm", "1"), ("layer_norm", "32")}


def _few_long(cols: int, block: int, kernel: str, itemsize: int) -> Layout | None:
    """The layout of the longest of few rows: as many programs as a cluster has, each with its part in registers."""
    norm = kernel != "softmax"
    if block == 65536:
        return Layout(1, 4096, -(-cols // 4096), 8, stream=False)
    if block == 131072:
        return Layout(1, 8192, -(-cols // 8192), 16 if norm and itemsize == 2 else 8, stream=False)
    if block == 262144 and norm and itemsize == 4:
        # Sixteen multiprocessors take longer to move it than two launches on all of them.
        return Layout(1, 2048, -(-cols // 2048), 8, stream=False)
    if block == 262144:
        return Layout(1, 16384, -(-cols // 16384), 16, stream=False, inner=8192 if norm else 0)
    return None


_LONGEST = ((32768, 8192, 16, 16, 1), (65536, 8192, 16, 16, 1))
_PARTS = {
    "softmax": ((16384, 4096, 16, 8, 1), *_LONGEST),
    "softmax_backward": ((8192, 0, 16, 8, 1), (16384, 0, 16, 8, 1), (32768, 0, 16, 32, 1), (65536, 0, 16, 32, 1)),
    "rms_norm": ((16384, 4096, 16, 8, 1), *_LONGEST),
    "layer_norm": ((16384, 2048, 16, 8, 1), *_LONGEST),
    "add_norm": ((8192, 0, 8, 8, 2), (16384, 4096, 8, 16, 1), (32768, 0, 8, 32, 2), *_LONGEST),
}
"""Elements of a part in half precision (half as many in fp32), of them walked at a time (0: held in registers), most
parts, warps, rows that a cluster walks one after the other."""


def parts_layout(cols: int, kernel: str = "softmax", itemsize: int = 2) -> Layout:
    """A row in parts: as many as a cluster holds, of the smallest size that suffices; beyond that, any number."""
    for elements, inner, most, warps, rows in _PARTS.get(kernel, _PARTS["softmax"]):
        part, step = elements * 2 // itemsize, inner * 2 // itemsize
        parts = -(-cols // part)
        if parts > 8:  # beyond eight a cluster has sixteen, of which few may idle
            if parts < 13 and not step:
                continue
            parts = max(parts, 16)
        if parts <= most:
            if step:  # equal parts
                part = -(-cols // (parts * step)) * step
            return Layout(rows, part, parts, warps, stream=False, inner=step)
    return Layout(1, 16384, max(-(-cols // 16384), 17), 16, stream=False)


def rows_launch(
    rows: int,
    cols: int,
    shape: Layout,
    scalars: tuple[int | float, ...],
    meta: dict[str, Any],
    *,
    norm: bool = False,
) -> Launch:
    """Launch of a kernel of `shape.rows` whole rows a program; a norm has weights, and loads them early or not."""
    if shape.parts != 1 or shape.block < cols:
        raise ValueError(f"{shape} does not hold a row of {cols} columns")
    meta = {
        **meta,
        "ROWS": shape.rows,
        "BLOCK": shape.block,
        "LEAN": LEAN and shape.lean,
        **({"EARLY": shape.early, "ONCE": shape.once and shape.rows == 1} if norm else {}),
        "STREAM": shape.stream,
        "FULL": _full(rows, shape),
        "EVEN": _even(rows, cols, shape),
    }
    grid = (-(-rows // shape.rows),)
    return Launch(grid, scalars, meta, shape.warps, 1, max_registers=shape.registers)


def twice_launch(
    rows: int,
    cols: int,
    shape: Layout,
    scalars: tuple[int | float, ...],
    meta: dict[str, Any],
    *,
    together: bool = False,
) -> Launch:
    """Launch of a kernel whose programs walk `shape.rows` rows twice, or one row, `shape.stages` blocks `together`."""
    shape = replace(shape, rows=1) if together else replace(shape, stages=1)
    cut = {"TOGETHER": shape.stages} if together else {"ROWS": shape.rows}
    cut |= {"BLOCK": shape.block, "EVEN": _even(rows, cols, shape)}
    grid, meta = (-(-rows // shape.rows),), {**meta, **cut}
    return Launch(grid, scalars, meta, shape.warps, 1, max_registers=shape.registers)


def _full(rows: int | torch.SymInt, shape: Layout) -> bool:
    """Whether no block reaches past the last row."""
    return shape.rows == 1 or (isinstance(rows, int) and rows % shape.rows == 0)


def _even(rows: int | torch.SymInt, cols: int, shape: Layout) -> bool:
    """Whether no block reaches past a row's end or the last row, so that nothing has to be masked."""
    wide = shape.block * (shape.stages if shape.parts == 0 else 1)
    return bool(int(cols) % wide == 0) and _full(rows, shape)


def alignment(sizes: Sequence[int | torch.SymInt]) -> int:
    """The largest of 1, 2, 4 and 8 that divides all of `sizes`, in elements; 1 also where Triton sees multiples of 16."""
    common = 16
    for size in sizes:
        if not isinstance(size, int):  # traced with a size that varies
            return 1
        common = gcd(common, size)
    return common % 16 or 1


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """`x` as [rows, cols] with unit stride in the row; copies only if the layout leaves no other way."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x
    cols = x.shape[-1] if x.dim() else 1
    if x.is_contiguous():
        return x.view(-1, cols) if cols else x.reshape(x.numel(), cols)
    flat = x.reshape(-1, cols)
    return flat if flat.stride(1) == 1 or cols == 1 else flat.contiguous()


_BUFFERS: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def exchange_buffers(device: torch.device, stats: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for the partial results (fp32) and zeroed counters (int32).

    The counters are zero again when the kernel ends, so one pair per device and stream is kept. While a graph is being
    captured it gets its own, zeroed inside the graph: it may be replayed on any stream.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.empty(stats, device=device), torch.zeros(rows, dtype=torch.int32, device=device)
    key = (device.index, torch.cuda.current_stream(device).cuda_stream)
    kept = _BUFFERS.get(key)
    if kept is None or kept[0].numel() < stats or kept[1].numel() < rows:
        size_stats = max(stats, kept[0].numel() if kept else 0)
        size_rows = max(rows, kept[1].numel() if kept else 0)
        kept = (
            torch.empty(size_stats, device=device),
            torch.zeros(size_rows, dtype=torch.int32, device=device),
        )
        _BUFFERS[key] = kept
    return kept


def split_meta(shape: Layout, cols: int = 0) -> dict[str, Any]:
    """The constexpr parameters that a kernel for rows of `cols` columns in parts takes from the layout."""
    cut: dict[str, Any] = {"PARTS": shape.parts, "PARTS_2": next_power_of_2(shape.parts), "BLOCK": shape.block}
    if shape.inner:
        return {**cut, "INNER": shape.inner, "EVEN": shape.parts * shape.block == int(cols)}
    return {**cut, "AHEAD": shape.stages > 1, "HOLD": shape.persistent > 0, "STREAM": shape.stream}


def launch_split(
    kernel: Kernel,
    key: tuple[Any, ...],
    tensors: tuple[torch.Tensor, ...],
    scalars: tuple[int, ...],
    meta: dict[str, Any],
    numbers: int,
    shape: Layout,
    traced: bool,
) -> Remembered | None:
    """Launch a kernel whose rows are shared by `shape.parts` programs, which pass on `numbers` partial results each.

    As one launch of clusters where the card and the installed Triton have them (worth keeping if it is returned), as
    two launches, statistics and output, anywhere else.
    """
    rows = scalars[0]
    device = tensors[0].device
    if not traced and clusters(device) and shape.parts <= MOST_PARTS and (kernel, shape) not in _NO_ROOM:
        fused = Launch(
            (-(-rows // shape.rows),),
            scalars,
            {**meta, "PHASE": FUSED},
            shape.warps,
            cluster=shape.parts,
            fit=shape.persistent > 0,
            max_registers=shape.registers,
        )
        try:
            # The partial results go through shared memory: no tensor is needed for them.
            return kernel((key, FUSED), (*tensors, tensors[0]), lambda: fused)
        except NoRoomError:
            _NO_ROOM.add((kernel, shape))
    stats = torch.empty(numbers * shape.parts * rows, dtype=torch.float32, device=device)
    for phase in (STATS, APPLY):
        cut = {name: False if name in ("AHEAD", "HOLD") else value for name, value in meta.items()}
        whole = Launch((rows * shape.parts,), scalars, {**cut, "PHASE": phase}, shape.warps)
        if traced:
            kernel.trace((*tensors, stats), whole)
        else:
            kernel((key, phase), (*tensors, stats), lambda whole=whole: whole)
    return None


_NO_ROOM: set[tuple[Kernel, Layout]] = set()
