"""Softmax and norms over rows of many lengths, with the layouts that the tuner chooses from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.kernels.cases.case import BF16, Case, randn
from benchmarks.kernels.other_libraries import liger

from lanewise.kernels import cost
from lanewise.kernels.rows import layer_norm as layer_norms
from lanewise.kernels.rows import rms_norm as rms_norms
from lanewise.kernels.rows import softmax as softmaxes
from lanewise.kernels.rows.add_rms_norm import add_rms_norm
from lanewise.kernels.rows.row_layout import Layout, crowd_of, next_power_of_2

__all__ = ["ROW_SHAPES", "norm_cases", "row_key", "row_layouts", "softmax_cases"]


ROW_SHAPES = (
    (32768, 1024),
    (16384, 2048),
    (8192, 4096),
    (8192, 8192),
    (4096, 16384),
    (2048, 32768),
    (2048, 65536),
    (1024, 131072),
    (512, 262144),
)


def row_key(rows: int, *key: Any) -> tuple[Any, ...]:
    """The tuner's key of `rows` rows on this card."""
    return *key, crowd_of(rows, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def row_layouts(cols: int, kernel: str = "softmax") -> tuple[Layout, ...]:
    """Candidates for the tuner; what lost everywhere on an H200 is gone (benchmarks/results)."""
    block = next_power_of_2(cols)

    def whole(warps: int, rows: int = 1, registers: int = 0, **more: bool) -> Layout:
        return Layout(rows, block, 1, warps, registers=registers, stream=False, **more)

    def split(part: int, warps: int, rows: int = 1, registers: int = 0) -> Layout:
        return Layout(rows, part, max(-(-cols // part), 1), warps, registers=registers, stream=False)

    def parts(part: int, inner: int, warps: int) -> Layout:
        return Layout(1, part, -(-cols // part), warps, inner=inner, stream=False)

    def twice(rows: int, part: int, warps: int) -> Layout:
        """For softmax `rows` are blocks of its only row taken together."""
        if kernel == "softmax":
            return Layout(1, part // rows, 0, warps, stages=rows)
        return Layout(rows, part, 0, warps)

    mean, norm, add = kernel == "layer_norm", "softmax" not in kernel, kernel == "add_norm"
    once = (whole(2, once=True), whole(1, once=True)) if mean else ()
    if cols <= 2048:
        return (whole(2), whole(1), whole(4), whole(4, 2), *once, *((whole(4, early=True),) if add else ()))
    if cols <= 4096:
        own = (whole(4, once=True), whole(8, once=True)) if mean else (whole(8, early=True),) if add else ()
        return (whole(8), whole(4), *own)
    if cols <= 8192:
        walked = (twice(1, 2048, 8), twice(1, 2048, 16), twice(1, 4096, 16)) if norm and not add else ()
        return (whole(8), whole(4), whole(16), *walked, *((whole(8, early=True), whole(16, early=True)) if add else ()))
    if cols <= 16384:
        loose = (whole(16), whole(8, lean=True), whole(16, early=True)) if norm else (whole(16), whole(8, lean=True))
        return (*loose, twice(1, 2048, 8), twice(1, 2048, 16), twice(1, 4096, 16), twice(1, 4096, 32))
    if kernel == "softmax_backward":
        return (split(8192, 8), split(16384, 16), split(4096, 8), twice(1, 8192, 32), twice(1, 8192, 16))
    if cols <= 32768:
        near = (
            twice(1, 4096, 16),
            twice(2, 8192, 16),
            twice(1, 8192, 32),
            twice(2 if kernel == "softmax" else 1, 16384, 32),
        )
        near = (*near, twice(1, 4096, 32)) if norm else near
        return (whole(16), whole(32, lean=True), *near, parts(16384, 4096, 8), parts(16384, 8192, 16))
    far = (parts(16384, 4096, 8), parts(16384, 8192, 16), parts(32768, 8192, 16))
    own = (parts(16384, 4096, 16), parts(16384, 2048, 8), parts(32768, 8192, 32)) if norm else (parts(16384, 8192, 8),)
    far = (*far, *own)
    if cols <= 65536:
        return (split(8192, 8, 2), split(8192, 8, 1, 48), twice(1, 8192, 32), *far)
    return (*((split(32768, 32, 2),) if add else ()), *far)


def softmax_cases() -> Iterator[Case]:
    """Softmax over rows."""
    for rows, cols in ROW_SHAPES:
        yield Case(
            "softmax",
            f"softmax {rows}x{cols}",
            lambda i, rows=rows, cols=cols: (randn(rows, cols, seed=i),),
            {"lanewise": softmaxes.softmax, "eager": lambda x: torch.softmax(x, -1), **liger("softmax", cols)},
            cost.softmax_cost(rows, cols, 2),
            lambda x: torch.softmax(x.float(), -1),
            tune=("softmax", row_key(rows, BF16, cols), row_layouts(cols)),
            shape={"rows": rows, "cols": cols},
        )


def norm_cases() -> Iterator[Case]:
    """RMSNorm, LayerNorm and both with an addition before them, over rows."""
    for rows, cols in ROW_SHAPES:

        def make(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            return randn(rows, cols, seed=i), randn(cols, seed=i + 1), randn(cols, seed=i + 2)

        shape = {"rows": rows, "cols": cols}
        yield Case(
            "rms_norm",
            f"rms_norm {rows}x{cols}",
            make,
            {
                "lanewise": lambda x, w, b: rms_norms.rms_norm(x, w, 1e-6),
                "eager": lambda x, w, b: rms_norms.reference(x, w, 1e-6),
                **liger("rms_norm", cols),
            },
            cost.norm_cost(rows, cols, 2, rms=True),
            lambda x, w, b: rms_norms.reference(x.float(), w.float(), 1e-6),
            tune=("rms_norm", row_key(rows, BF16, cols, False), row_layouts(cols, "rms_norm")),
            shape=shape,
        )
        yield Case(
            "layer_norm",
            f"layer_norm {rows}x{cols}",
            make,
            {"lanewise": layer_norms.layer_norm, "eager": layer_norms.reference, **liger("layer_norm", cols)},
            cost.norm_cost(rows, cols, 2, rms=False),
            lambda x, w, b: layer_norms.reference(x.float(), w.float(), b.float()),
            tune=("layer_norm", row_key(rows, BF16, cols, False), row_layouts(cols, "layer_norm")),
            shape=shape,
        )
        if rows * cols > 1 << 26:
            rows //= 2

        def make_add(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            return randn(rows, cols, seed=i), randn(rows, cols, seed=i + 7), randn(cols, seed=i + 1)

        def add_eager(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = x + r
            return rms_norms.reference(total, w, 1e-6), total

        def add_exact(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = x.float() + r.float()
            return rms_norms.reference(total, w.float(), 1e-6), total

        yield Case(
            "add_rms_norm",
            f"add_rms_norm {rows}x{cols}",
            make_add,
            {
                "lanewise": lambda x, r, w: add_rms_norm(x, r, w, 1e-6),
                "eager": add_eager,
                **liger("add_rms_norm", cols),
            },
            cost.norm_cost(rows, cols, 2, rms=True, residual=True),
            add_exact,
            tune=("rms_norm", row_key(rows, BF16, cols, True), row_layouts(cols, "add_norm")),
            shape={"rows": rows, "cols": cols},
        )
