"""LayerNorm of a sum: a residual is added in the kernel that normalises, and both results are returned.

`add_layer_norm(x, residual, w, b, eps)` is `layer_norm` of `x + residual`, rounded to the dtype of x first, and that sum.
Dtypes and shapes are those of `lanewise.kernels.rows.layer_norm`. Differentiable once in x, residual, w and b.
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
from lanewise.kernels.rows.layer_norm import reference
from lanewise.kernels.rows.norm_backward import norm_backward
from lanewise.kernels.rows.norm_forward import norm_for_training, norm_forward

__all__ = ["add_layer_norm"]


class _AddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor,
        w: torch.Tensor | None,
        b: torch.Tensor | None,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = norm_for_training(x, residual, w, b, eps, rms=False, recent=_RECENT_TRAINING)
        ctx.save_for_backward(out.total, w, out.mean, out.rstd)
        ctx.has_bias = b is not None
        return out.y, out.total

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor, ds: torch.Tensor) -> tuple[Any, ...]:
        x, w, mean, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[2]
        need_b = ctx.has_bias and ctx.needs_input_grad[3]
        dx, dw, db = norm_backward(dy, ds, x, w, mean, rstd, False, need_w, need_b)
        return dx, dx, dw, db, None


def add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    w: torch.Tensor | None = None,
    b: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(LayerNorm of `x + residual`, `x + residual`), the sum rounded to the dtype of x before it is normalised."""
    if not compiling():
        if too_small_to_train(x, NORM):
            return _train(x, residual, w, b, eps)
        for quick in _RECENT.get(eps):
            out = quick(x, residual, w, b)
            if out is not None:
                return out
        if _ADMITTED.knows(x, w, b, residual) and torch.is_grad_enabled():
            return _train(x, residual, w, b, eps)
    refused = refuse_norm(x, w, b, residual)
    if refused is not None:
        fell_back("add_layer_norm", refused)
        total = x + residual
        return reference(total, w, b, eps), total
    if not eager():
        hit("add_layer_norm")
        y, total, _, _ = torch.ops.lanewise.add_layer_norm(x, residual, w, b, eps)
        return y, total
    if wants_grad(x, residual, w, b):
        _ADMITTED.admit(x, w, b, residual)
        return _train(x, residual, w, b, eps)
    hit("add_layer_norm")
    out = norm_forward(x, residual, w, b, eps, rms=False, save=False, recent=_RECENT)
    return out.y, out.total


def _train(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if host_bound(x, NORM):
        fell_back("add_layer_norm", HOST_BOUND)
        total = x + residual
        return reference(total, w, b, eps), total
    hit("add_layer_norm")
    return _apply(_AddLayerNorm, x, residual, w, b, eps)


_RECENT = Recent("add_layer_norm")
_ADMITTED = Admitted()
_RECENT_TRAINING = Recent("add_layer_norm_training", counted=False)
