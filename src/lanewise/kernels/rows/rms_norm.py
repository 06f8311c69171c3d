"""RMSNorm over the last dimension, alone or after adding a residual.

`rms_norm(x, w, eps)` is `torch.nn.functional.rms_norm(x, (cols,), w, eps)`; `add_rms_norm(x, residual, w, eps)`
returns that of `x + residual` together with the sum. x [..., cols] in fp32, fp16 or bf16, w [cols] of the same dtype,
fp32 inside. Differentiable once in x, residual and w. Kernels, formulas and bytes: `lanewise.kernels.rows.norm_forward`,
`lanewise.kernels.rows.norm_backward`.
Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
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

__all__ = ["add_rms_norm", "reference", "rms_norm"]


def reference(x: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, eps)


def _forward(x: torch.Tensor, residual: torch.Tensor | None, w: torch.Tensor | None, eps: float) -> NormOutputs:
    for quick in _RECENT_TRAINING.get(eps):
        again = quick(x, residual, w, None)
        if again is not None:
            return NormOutputs(*again)
    return norm_forward(x, residual, w, None, eps, rms=True, save=True, recent=_RECENT_TRAINING)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor | None, eps: float) -> torch.Tensor:
        out = _forward(x, None, w, eps)
        ctx.save_for_backward(x if x.is_contiguous() else x.contiguous(), w, out.rstd)
        return out.y

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, w, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[1]
        dx, dw, _ = norm_backward(dy, None, x, w, rstd, rstd, True, need_w, False)
        return dx, dw, None


class _AddRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = _forward(x, residual, w, eps)
        ctx.save_for_backward(out.total, w, out.rstd)
        return out.y, out.total

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor, ds: torch.Tensor) -> tuple[Any, ...]:
        x, w, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[2]
        dx, dw, _ = norm_backward(dy, ds, x, w, rstd, rstd, True, need_w, False)
        return dx, dx, dw, None


def rms_norm(x: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm of `x` over its last dimension with weight `w`."""
    if not compiling():
        if too_small_to_train(x, NORM):
            fell_back("rms_norm", HOST_BOUND)
            return torch.rms_norm(x, x.shape[-1:], w, eps)
        for quick in _RECENT.get(eps):
            out = quick(x, None, w, None)
            if out is not None:
                return out
        if _ADMITTED.knows(x, w) and torch.is_grad_enabled():
            return _train(x, w, eps)
    refused = refuse_norm(x, w)
    if refused is not None:
        fell_back("rms_norm", refused)
        return reference(x, w, eps)
    if not eager():
        hit("rms_norm")
        return torch.ops.lanewise.rms_norm(x, w, eps)[0]
    if wants_grad(x, w):
        _ADMITTED.admit(x, w)
        return _train(x, w, eps)
    hit("rms_norm")
    return norm_forward(x, None, w, None, eps, rms=True, save=False, recent=_RECENT).y


def _train(x: torch.Tensor, w: torch.Tensor | None, eps: float) -> torch.Tensor:
    if host_bound(x, NORM):
        fell_back("rms_norm", HOST_BOUND)
        return reference(x, w, eps)
    hit("rms_norm")
    return _apply(_RmsNorm, x, w, eps)


def _train_add(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if host_bound(x, NORM):
        fell_back("add_rms_norm", HOST_BOUND)
        total = x + residual
        return reference(total, w, eps), total
    hit("add_rms_norm")
    return _apply(_AddRmsNorm, x, residual, w, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMSNorm of `x + residual`, `x + residual`), the sum rounded to the dtype of x before it is normalised."""
    if not compiling():
        if too_small_to_train(x, NORM):
            return _train_add(x, residual, w, eps)
        for quick in _RECENT_ADD.get(eps):
            out = quick(x, residual, w, None)
            if out is not None:
                return out
        if _ADMITTED_ADD.knows(x, w, residual) and torch.is_grad_enabled():
            return _train_add(x, residual, w, eps)
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
        _ADMITTED_ADD.admit(x, w, residual)
        return _train_add(x, residual, w, eps)
    hit("add_rms_norm")
    out = norm_forward(x, residual, w, None, eps, rms=True, save=False, recent=_RECENT_ADD)
    return out.y, out.total


_RECENT = Recent("rms_norm")
_RECENT_ADD = Recent("add_rms_norm")
_ADMITTED, _ADMITTED_ADD = Admitted(), Admitted()
_RECENT_TRAINING = Recent("rms_norm_training", counted=False)
