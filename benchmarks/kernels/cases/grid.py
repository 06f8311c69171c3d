"""Softmax and norms over a grid of shapes that nothing was tuned to: few rows and many, odd lengths, three types.

Every cell of rows x columns that fits, for every operator, each in one of the types (a Latin square, so that each type
meets each row count and each length). In random order: a run that is cut short has measured a sample of all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.kernels.cases.case import Case, randn
from benchmarks.kernels.cases.rows import row_key, row_layouts
from benchmarks.kernels.other_libraries import liger

from lanewise.kernels import cost
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows import softmax as softmaxes
from lanewise.kernels.rows.row_layout import Layout, next_power_of_2

__all__ = ["grid_cases"]

_ROWS = (1, 16, 100, 333, 1000, 4096, 65536, 1_000_000)
_COLS = (32, 257, 1000, 4096, 6144, 7168, 12288, 50257, 128256, 262144)
_TYPES = (torch.bfloat16, torch.float16, torch.float32)
_LARGEST = 1 << 28  # elements


@dataclass(frozen=True)
class _Cell:
    """One shape in one type."""

    rows: int
    cols: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.cols} {str(self.dtype).removeprefix('torch.')}"

    def x(self, seed: int) -> torch.Tensor:
        return randn(self.rows, self.cols, seed=seed, dtype=self.dtype)

    def x_and_weights(self, seed: int) -> tuple[torch.Tensor, ...]:
        return self.x(seed), *(randn(self.cols, seed=seed + n, dtype=self.dtype) for n in (1, 2))


def grid_cases() -> Iterator[Case]:
    """Softmax, RMSNorm and LayerNorm over the grid, in random order."""
    found = [
        make(_Cell(rows, cols, _TYPES[(i + j + k) % len(_TYPES)]))
        for i, rows in enumerate(_ROWS)
        for j, cols in enumerate(_COLS)
        for k, make in enumerate((_softmax, _rms_norm, _layer_norm))
        if rows * cols <= _LARGEST
    ]
    random.Random(2).shuffle(found)
    yield from found


def _exact(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(t.double() if t.dtype == torch.float32 else t.float() for t in tensors)


def _case(kernel: str, cell: _Cell, **more: Any) -> Case:
    key = row_key(cell.rows, cell.dtype, cell.cols, *(() if kernel == "softmax" else (False,)))
    return Case(
        "grid",
        f"{kernel} {cell.name}",
        tune=(kernel, key, (*_more_layouts(cell.cols, kernel), *row_layouts(cell.cols, kernel))),
        dtypes=str(cell.dtype).removeprefix("torch."),
        shape={"rows": cell.rows, "cols": cell.cols},
        **more,
    )


def _more_layouts(cols: int, kernel: str) -> Iterator[Layout]:
    """Candidates for short rows whose values are read one by one, and for few rows: of the longest, many parts, which
    run as two launches where they are more than a cluster has."""
    block = next_power_of_2(cols)
    if cols <= 1024:
        yield from (Layout(rows, block, 1, warps, stream=False) for rows, warps in ((4, 2), (4, 1), (2, 1), (8, 4)))
    if kernel != "softmax" and cols <= 16384:
        yield from (Layout(1, block, 1, warps, stream=False, early=True) for warps in (4, 8, 16, 32))
    if cols > 32768:
        cuts = ((1024, 4), (2048, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
        yield from (Layout(1, part, -(-cols // part), warps, stream=False) for part, warps in cuts)


def _softmax(cell: _Cell) -> Case:
    return _case(
        "softmax",
        cell,
        make=lambda i: (cell.x(i),),
        arms={"lanewise": softmaxes.softmax, "eager": softmaxes.reference, **liger("softmax", cell.cols)},
        cost=cost.softmax_cost(cell.rows, cell.cols, cell.dtype.itemsize),
        exact=lambda x: torch.softmax(*_exact(x), -1),
    )


def _rms_norm(cell: _Cell) -> Case:
    return _case(
        "rms_norm",
        cell,
        make=cell.x_and_weights,
        arms={
            "lanewise": lambda x, w, b: rms_norms.rms_norm(x, w, 1e-6),
            "eager": lambda x, w, b: rms_norms.reference(x, w, 1e-6),
            **liger("rms_norm", cell.cols),
        },
        cost=cost.norm_cost(cell.rows, cell.cols, cell.dtype.itemsize, rms=True),
        exact=lambda x, w, b: rms_norms.reference(*_exact(x, w), 1e-6),
    )


def _layer_norm(cell: _Cell) -> Case:
    return _case(
        "layer_norm",
        cell,
        make=cell.x_and_weights,
        arms={"lanewise": layer_norms.layer_norm, "eager": layer_norms.reference, **liger("layer_norm", cell.cols)},
        cost=cost.norm_cost(cell.rows, cell.cols, cell.dtype.itemsize, rms=False),
        exact=lambda x, w, b: layer_norms.reference(*_exact(x, w, b)),
    )
