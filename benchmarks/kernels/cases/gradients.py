"""The backward passes of softmax and norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.kernels.cases.case import BF16, Case, randn
from benchmarks.kernels.cases.rows import row_key, row_layouts

from lanewise.kernels import (
    cost,
)
from lanewise.kernels.rows.norm_backward import norm_backward
from lanewise.kernels.rows.row_layout import Layout, next_power_of_2
from lanewise.kernels.rows.softmax import softmax_gradient

__all__ = ["backward_cases"]


def backward_cases() -> Iterator[Case]:
    """Gradients of softmax, RMSNorm and LayerNorm."""
    for rows, cols in ((32768, 1024), (8192, 4096), (4096, 8192), (2048, 16384), (1024, 65536)):

        def make_softmax(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            return randn(rows, cols, seed=i), torch.softmax(randn(rows, cols, seed=i + 1), -1)

        yield Case(
            "softmax_backward",
            f"softmax backward {rows}x{cols}",
            make_softmax,
            {
                "lanewise": softmax_gradient,
                "eager": lambda dy, y: torch.ops.aten._softmax_backward_data(dy, y, -1, BF16),
            },
            cost.softmax_backward_cost(rows, cols, 2),
            lambda dy, y: (dy.float() - (dy.float() * y.float()).sum(-1, keepdim=True)) * y.float(),
            tune=("softmax_backward", row_key(rows, BF16, cols), row_layouts(cols, "softmax_backward")),
            shape={"rows": rows, "cols": cols},
        )

        def make_norm(i: int, rows: int = rows, cols: int = cols) -> tuple[Any, ...]:
            x, w = randn(rows, cols, seed=i), randn(cols, seed=i + 2)
            mean = x.float().mean(-1)
            rstd = (x.float().var(-1, unbiased=False) + 1e-5).rsqrt()
            root = (x.float().square().mean(-1) + 1e-6).rsqrt()
            return randn(rows, cols, seed=i + 1), x, w, mean, rstd, root

        def exact_rms(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> tuple[torch.Tensor, ...]:
            dy, x, w, r = dy.float(), x.float(), w.float(), root[:, None]
            xhat, g = x * r, dy * w
            return r * (g - xhat * (g * xhat).mean(-1, keepdim=True)), (dy * xhat).sum(0)

        def exact_layer(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> tuple[torch.Tensor, ...]:
            dy, x, w, r = dy.float(), x.float(), w.float(), rstd[:, None]
            xhat, g = (x - mean[:, None]) * r, dy * w
            dx = r * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
            return dx, (dy * xhat).sum(0), dy.sum(0)

        def eager_layer(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return torch.ops.aten.native_layer_norm_backward(
                dy, x, [x.shape[-1]], mean[:, None], rstd[:, None], w, w, [True, True, True]
            )

        def eager_rms(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return torch.ops.aten._fused_rms_norm_backward(dy, x, [x.shape[-1]], root[:, None], w, [True, True])

        def ours_layer(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return tuple(norm_backward(dy, None, x, w, mean, rstd, False, True, True))

        def ours_rms(dy: Any, x: Any, w: Any, mean: Any, rstd: Any, root: Any) -> Any:
            return tuple(norm_backward(dy, None, x, w, root, root, True, True, False))[:2]

        block = next_power_of_2(cols)
        if cols <= 1024:
            layouts = [Layout(2, block, 1, 4, 4), Layout(2, block, 1, 4, 6), Layout(1, block, 1, 2, 8)]
            lean = ((4, 4, 2), (2, 8, 2), (2, 12, 1))
        elif cols <= 4096:
            layouts = [Layout(1, block, 1, 8, 2), Layout(1, block, 1, 8, 3), Layout(1, block, 1, 8, 4)]
            lean = ((8, 2, 2), (8, 3, 1), (8, 4, 1), (16, 2, 2))
        else:
            layouts = [Layout(1, block, 1, 16, 1)] if cols <= 16384 else []
            layouts += [Layout(1, block, 1, 16, 2)] if cols <= 16384 else []
            lean = ((16, 1, 2), (16, 2, 1), (8, 3, 1))
        if cols <= 16384:
            layouts += [Layout(1, block, 1, warps, per_sm, stages, lean=True) for warps, per_sm, stages in lean]
        if cols > 8192:
            layouts.append(Layout(1, 2048, 0, 8))
            cuts = ((4096, 8, 2, 1), (4096, 8, 2, 2), (8192, 16, 1, 1), (8192, 16, 1, 2))
            layouts += [Layout(1, part, -(-cols // part), *cut) for part, *cut in cuts]
        for name, ours, eager, exact in (
            ("rms_norm", ours_rms, eager_rms, exact_rms),
            ("layer_norm", ours_layer, eager_layer, exact_layer),
        ):
            yield Case(
                f"{name}_backward",
                f"{name} backward {rows}x{cols}",
                make_norm,
                {"lanewise": ours, "eager": eager},
                cost.norm_backward_cost(rows, cols, 2, rms=name == "rms_norm"),
                exact,
                tune=("norm_backward", (BF16, cols, name == "rms_norm"), tuple(layouts)),
                shape={"rows": rows, "cols": cols},
            )
