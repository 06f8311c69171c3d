"""RMSNorm of a sum: a residual is added in the kernel that normalises, and both results are returned.

`add_rms_norm(x, residual, w, eps)` is `rms_norm` of `x + residual`, rounded to the dtype of x first, and that sum.
Dtypes and shapes are those of `lanewise.kernels.rows.rms_norm`. Differentiable once in x, residual and w.
"""

from __future__ import annotations

from typing import Any

import torch

from lanewise.kernels.dispatch.autograd_functions import apply as _apply
from lanewise.kernels.dispatch.autograd_functions import differentiable_once
from lanewise.kernels.dispatch.eligibility import (
    HOST_BOUND,
    NORM,
    compiling,
    eager,
    fell_back,
    hit,
    host_bound,
    refuse_norm,
    too_small_to_train,
    wants_grad,
)
from lanewise.kernels.dispatch.specialized_calls import Admitted, Recent
from lanewise.kernels.rows.norm_backward import norm_backward
from lanewise.kernels.rows.norm_forward import norm_for_training, norm_forward
from lanewise.kernels.rows.rms_norm import reference

__all__ = ["add_rms_norm"]


class _AddRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = norm_for_training(x, residual, w, None, eps, rms=True, recent=_RECENT_TRAINING)
        ctx.save_for_backward(out.total, w, out.rstd)
        return out.y, out.total

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor, ds: torch.Tensor) -> tuple[Any, ...]:
        x, w, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[2]
        dx, dw, _ = norm_backward(dy, ds, x, w, rstd, rstd, True, need_w, False)
        return dx, dx, dw, None


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMSNorm of `x + residual`, `x + residual`), the sum rounded to the dtype of x before it is normalised."""
    if not compiling():
        if too_small_to_train(x, NORM):
            return _train(x, residual, w, eps)
        for quick in _RECENT.get(eps):
            out = quick(x, residual, w, None)
            if out is not None:
                return out
        if _ADMITTED.knows(x, w, residual) and torch.is_grad_enabled():
            return _train(x, residual, w, eps)
    refused = refuse_norm(x, w, residual)
    if refused is not None:
        fell_back("add_rms_norm", refused)
        total = x + residual
        return reference(total, w, eps), total
    if not eager():
        hit("add_rms_norm")
        y, total, _ = torch.ops.lanewise.add_rms_norm(x, residual, w, eps)
        return y, total
    if wants_grad(x, residual, w):
        _ADMITTED.admit(x, w, residual)
        return _train(x, residual, w, eps)
    hit("add_rms_norm")
    out = norm_forward(x, residual, w, None, eps, rms=True, save=False, recent=_RECENT)
    return out.y, out.total


def _train(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if host_bound(x, NORM):
        fell_back("add_rms_norm", HOST_BOUND)
        total = x + residual
        return reference(total, w, eps), total
    hit("add_rms_norm")
    return _apply(_AddRmsNorm, x, residual, w, eps)


_RECENT = Recent("add_rms_norm")
_ADMITTED = Admitted()
_RECENT_TRAINING = Recent("add_rms_norm_training", counted=False)
