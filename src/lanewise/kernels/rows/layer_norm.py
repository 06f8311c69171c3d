"""LayerNorm over the last dimension, alone or after adding a residual.

`layer_norm(x, w, b, eps)` is `torch.nn.functional.layer_norm(x, (cols,), w, b, eps)`; `add_layer_norm(x, residual, w,
b, eps)` returns that of `x + residual` together with the sum. x [..., cols] in fp32, fp16 or bf16, w and b [cols] of
the same dtype, fp32 inside. Differentiable once in x, residual, w and b. Kernels, formulas and bytes:
`lanewise.kernels.rows.norm_forward`, `lanewise.kernels.rows.norm_backward`. Ba, Kiros and Hinton, Layer Normalization,
2016.
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
from lanewise.kernels.rows.norm_forward import NormOutputs, norm_forward

__all__ = ["add_layer_norm", "layer_norm", "reference"]


def reference(
    x: torch.Tensor, w: torch.Tensor | None = None, b: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b, eps)


def _forward(
    x: torch.Tensor, residual: torch.Tensor | None, w: torch.Tensor | None, b: torch.Tensor | None, eps: float
) -> NormOutputs:
    for quick in _RECENT_TRAINING.get(eps):
        again = quick(x, residual, w, b)
        if again is not None:
            return NormOutputs(*again)
    return norm_forward(x, residual, w, b, eps, rms=False, save=True, recent=_RECENT_TRAINING)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float) -> torch.Tensor:
        out = _forward(x, None, w, b, eps)
        ctx.save_for_backward(x if x.is_contiguous() else x.contiguous(), w, out.mean, out.rstd)
        ctx.has_bias = b is not None
        return out.y

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, w, mean, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[1]
        need_b = ctx.has_bias and ctx.needs_input_grad[2]
        dx, dw, db = norm_backward(dy, None, x, w, mean, rstd, False, need_w, need_b)
        return dx, dw, db, None


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
        out = _forward(x, residual, w, b, eps)
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


def layer_norm(
    x: torch.Tensor, w: torch.Tensor | None = None, b: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """LayerNorm of `x` over its last dimension with weight `w` and bias `b`."""
    if not compiling():
        if too_small_to_train(x, NORM):
            fell_back("layer_norm", HOST_BOUND)
            return reference(x, w, b, eps)
        for quick in _RECENT.get(eps):
            out = quick(x, None, w, b)
            if out is not None:
                return out
        if _ADMITTED.knows(x, w, b) and torch.is_grad_enabled():
            return _train(x, w, b, eps)
    refused = refuse_norm(x, w, b)
    if refused is not None:
        fell_back("layer_norm", refused)
        return reference(x, w, b, eps)
    if not eager():
        hit("layer_norm")
        return torch.ops.lanewise.layer_norm(x, w, b, eps)[0]
    if wants_grad(x, w, b):
        _ADMITTED.admit(x, w, b)
        return _train(x, w, b, eps)
    hit("layer_norm")
    return norm_forward(x, None, w, b, eps, rms=False, save=False, recent=_RECENT).y


def _train(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float) -> torch.Tensor:
    if host_bound(x, NORM):
        fell_back("layer_norm", HOST_BOUND)
        return reference(x, w, b, eps)
    hit("layer_norm")
    return _apply(_LayerNorm, x, w, b, eps)


def _train_add(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if host_bound(x, NORM):
        fell_back("add_layer_norm", HOST_BOUND)
        total = x + residual
        return reference(total, w, b, eps), total
    hit("add_layer_norm")
    return _apply(_AddLayerNorm, x, residual, w, b, eps)


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
            return _train_add(x, residual, w, b, eps)
        for quick in _RECENT_ADD.get(eps):
            out = quick(x, residual, w, b)
            if out is not None:
                return out
        if _ADMITTED_ADD.knows(x, w, b, residual) and torch.is_grad_enabled():
            return _train_add(x, residual, w, b, eps)
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
        _ADMITTED_ADD.admit(x, w, b, residual)
        return _train_add(x, residual, w, b, eps)
    hit("add_layer_norm")
    out = norm_forward(x, residual, w, b, eps, rms=False, save=False, recent=_RECENT_ADD)
    return out.y, out.total


_RECENT = Recent("layer_norm")
_RECENT_ADD = Recent("add_layer_norm")
_ADMITTED, _ADMITTED_ADD = Admitted(), Admitted()
_RECENT_TRAINING = Recent("layer_norm_training", counted=False)
