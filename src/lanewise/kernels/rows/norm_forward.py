"""Which forward kernel a norm's rows take, with what, and the call kept for the next of its kind.

Formulas and bytes: `lanewise.kernels.rows.norm_forward_kernels`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from lanewise.kernels.dispatch.launcher import Launch
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.rows.norm_cluster_kernels import PARTS_KERNEL, SPLIT_KERNEL
from lanewise.kernels.rows.norm_forward_kernels import ROWS_KERNEL, TWICE_KERNEL
from lanewise.kernels.rows.row_layout import (
    WIDEST_ROW,
    Layout,
    alignment,
    as_rows,
    launch_split,
    pick_layout,
    rows_launch,
    split_meta,
    twice_launch,
)

__all__ = ["NormOutputs", "norm_for_training", "norm_forward"]


class NormOutputs(NamedTuple):
    """y, input + residual (y itself when there is no residual), and the fp32 statistics per row."""

    y: torch.Tensor
    total: torch.Tensor
    mean: torch.Tensor
    rstd: torch.Tensor


def norm_forward(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    rms: bool,
    save: bool,
    traced: bool = False,
    recent: Recent | None = None,
) -> NormOutputs:
    """Run the forward kernel; the statistics are filled only when `save` is set.

    `recent` is where the call may be kept, under `eps`, as a function of (x, residual, w, b); what that returns is all
    four outputs when `save` is set, y and the sum, or y alone.
    """
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = y if residual is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    flat = as_rows(x)
    rows, cols = flat.shape
    mean = rstd = y
    if save:
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        mean = rstd if rms else torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows == 0 or cols == 0:
        return NormOutputs(y, total, mean, rstd)
    more = flat if residual is None else as_rows(residual)
    sizes = {"COLS": int(cols), "X_STRIDE": int(flat.stride(0)), "R_STRIDE": int(more.stride(0))}
    add, has_w, has_b = residual is not None, w is not None, b is not None
    tensors = (flat, more, flat if w is None else w, flat if b is None else b, y, total, mean, rstd)

    def meta() -> dict[str, Any]:
        return {"EPS": eps, "RMS": rms, "ADD": add, "HAS_W": has_w, "HAS_B": has_b, "SAVE": save}

    def shape() -> Layout:
        kernel = "rms_norm" if rms else "layer_norm"
        return pick_layout(kernel, (x.dtype, int(cols), add), "add_norm" if add else kernel, x, cols, traced)

    key = (rows, *sizes.values(), eps, rms, add, has_w, has_b, save, x.dtype, x.device.index)

    def whole() -> Launch:
        cut = shape()
        if cut.parts == 0:
            return twice_launch(rows, cols, cut, (rows,), {**sizes, **meta()})
        return rows_launch(rows, cols, cut, (rows,), {**sizes, **meta()}, norm=True)

    spread = None if cols <= WIDEST_ROW else shape()
    if spread is None or spread.parts <= 1:
        kernel = TWICE_KERNEL if spread is not None and spread.parts == 0 else ROWS_KERNEL
        kept = None
        if traced:
            kernel.trace(tensors, whole())
        else:
            kept = kernel(key, tensors, whole)
    else:
        scalars = (rows, cols, flat.stride(0), more.stride(0))
        split = {**meta(), "ALIGN": alignment(scalars[1:]), **split_meta(spread, cols)}
        kept = launch_split(
            PARTS_KERNEL if spread.inner else SPLIT_KERNEL, key, tensors, scalars, split, 2, spread, traced
        )
    if recent is None or kept is None:
        return NormOutputs(y, total, mean, rstd)
    if flat.data_ptr() == x.data_ptr() and (residual is None or more.data_ptr() == residual.data_ptr()):
        outputs = [y, *([total] if add else []), *([rstd] if save else []), *([mean] if save and not rms else [])]
        at_total, at_rstd = ~1 if add else ~0, ~(1 + add) if save else ~0
        at_mean = ~(2 + add) if save and not rms else at_rstd
        order = (0, 1 if add else 0, 2 if has_w else 0, 3 if has_b else 0, ~0, at_total, at_mean, at_rstd, 0)
        returned = (0, ~at_total, ~at_mean, ~at_rstd) if save else (0, 1) if add else (0,)
        recent.keep(eps, (x, residual, w, b), outputs, [Step(kept, order)], returned)
    return NormOutputs(y, total, mean, rstd)


def norm_for_training(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    eps: float,
    *,
    rms: bool,
    recent: Recent,
) -> NormOutputs:
    """The forward pass with its statistics, by the short way where `recent` knows the call."""
    for quick in recent.get(eps):
        again = quick(x, residual, w, b)
        if again is not None:
            return NormOutputs(*again)
    return norm_forward(x, residual, w, b, eps, rms=rms, save=True, recent=recent)
