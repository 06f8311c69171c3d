"""Between contiguous memory (N, C, positions) and channels-last memory (N, positions, C), for images and volumes.

`to_channels_last(x)` is `x.contiguous(memory_format=torch.channels_last)`, or `channels_last_3d` for five dimensions;
`from_channels_last(x)` is `x.contiguous()`: same bits, same strides, and x itself where nothing is to be done. Either is
the transposition of N matrices, one tile a program, read and written along what is adjacent in memory. PyTorch's copy
follows one of the two layouts and leaves the other's accesses apart.

Bytes: each element once in each direction (`cost.layout_cost`). Inference only: a call that records gradients, is traced
or holds too little to pay runs PyTorch's own.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from lanewise.errors import UsageError
from lanewise.kernels.dispatch.eligibility import eager, fell_back, hit, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch

__all__ = ["Tile", "format_of", "from_channels_last", "tile_of", "to_channels_last"]

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int16})
least_bytes = 1 << 24
"""Smallest tensor for which the kernel is taken. On an H200 (torch 2.11, mean of five calls) 38 MB of fp32, 96 channels,
are there in 26 us and back in 26 (PyTorch 51 and 73); of 5 MB, 3 channels, PyTorch's 19 and 14 us are mostly the launch."""
least_in_sample = 1 << 10
"""Fewest elements of a sample: of less, tiles are mostly empty."""


@triton.jit
def _transpose(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Tile by tile, each matrix [rows, cols] of x as [cols, rows] of y; the tiles of one row of tiles are neighbours."""
    across = tl.cdiv(cols, COLS)
    each = across * tl.cdiv(rows, ROWS)
    # One axis for everything: the others end at 65,535.
    matrix = (tl.program_id(0) // each).to(tl.int64)
    tile = tl.program_id(0) % each
    row = (tile // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = (tile % across).to(tl.int64) * COLS + tl.arange(0, COLS)
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    start = matrix * rows * cols
    block = tl.load(x_ptr + start + row[:, None] * cols + col[None, :], mask=inside)
    tl.store(y_ptr + start + col[:, None] * rows + row[None, :], tl.trans(block), mask=tl.trans(inside))


TRANSPOSE_KERNEL = Kernel(_transpose)


class Tile(NamedTuple):
    """What one program moves, in how many warps."""

    channels: int
    positions: int
    warps: int


def tile_of(channels: int, positions: int, *, back: bool) -> Tile:
    """The fastest of eight tiles on an H200 (fp32; 3, 32, 64, 96 and 128 channels), for each way."""
    if (few := min(channels, positions)) <= 16:
        few = 1 << (few - 1).bit_length()
        return Tile(few, 1024 // few, 4) if channels <= positions else Tile(1024 // few, few, 4)
    if channels > 64 and -channels % 64 >= 32:  # the last tile would be half empty
        return Tile(32, 128 if back else 32, 4)
    return Tile(64, 128 if back or channels > 64 else 64, 8)


def format_of(x: torch.Tensor) -> torch.memory_format:
    """Channels-last for the rank of x: of images (4) or volumes (5)."""
    found = _FORMATS.get(x.dim())
    if found is None:
        raise UsageError(f"channels-last memory is for tensors of 4 or 5 dimensions, got {x.dim()}")
    return found


def to_channels_last(x: torch.Tensor) -> torch.Tensor:
    """`x.contiguous(memory_format=torch.channels_last)`, or `channels_last_3d` for five dimensions."""
    layout = format_of(x)
    if x.is_contiguous(memory_format=layout):
        return x
    refused = _refuse(x, torch.contiguous_format)
    if refused is not None:
        fell_back("to_channels_last", refused)
        return x.contiguous(memory_format=layout)
    hit("to_channels_last")
    return _moved(x, layout, back=False)


def from_channels_last(x: torch.Tensor) -> torch.Tensor:
    """`x.contiguous()`, for x of four or five dimensions in channels-last memory."""
    layout = format_of(x)
    if x.is_contiguous():
        return x
    refused = _refuse(x, layout)
    if refused is not None:
        fell_back("from_channels_last", refused)
        return x.contiguous()
    hit("from_channels_last")
    return _moved(x, torch.contiguous_format, back=True)


def _moved(x: torch.Tensor, layout: torch.memory_format, *, back: bool) -> torch.Tensor:
    """The elements of a dense x in the other memory format."""
    y = torch.empty_like(x, memory_format=layout)
    batch, channels = x.shape[:2]
    positions = x.numel() // (batch * channels)

    def launch() -> Launch:
        tile = tile_of(channels, positions, back=back)
        tiles = batch * -(-channels // tile.channels) * -(-positions // tile.positions)
        shape, cut = (channels, positions), (tile.channels, tile.positions)
        rows, cols = shape[::-1] if back else shape
        tall, wide = cut[::-1] if back else cut
        return Launch((tiles,), (rows, cols), {"ROWS": tall, "COLS": wide}, tile.warps)

    TRANSPOSE_KERNEL((batch, channels, positions, back, x.dtype, x.device), (x, y), launch)
    return y


def _refuse(x: torch.Tensor, layout: torch.memory_format) -> str | None:
    """Why PyTorch moves x, which is to be in `layout` now."""
    if type(x) is not torch.Tensor and type(x) is not torch.nn.Parameter:
        return "tensor subclass"
    if not eager():
        return "traced: the compiler chooses layouts itself"
    if not x.is_cuda and not INTERPRETED:
        return "cpu tensor"
    if x.dtype not in _DTYPES:
        return "dtype"
    if wants_grad(x):
        return "needs gradients"
    if not x.is_contiguous(memory_format=layout) or x.is_neg():
        return "neither contiguous nor channels-last"
    if x.numel() * x.element_size() < max(least_bytes, 1) or x.numel() // x.shape[0] < least_in_sample:
        return "too small"
    return None
