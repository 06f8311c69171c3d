"""LayerNorm over the last dimension.

`layer_norm(x, w, b, eps)` is `torch.nn.functional.layer_norm(x, (cols,), w, b, eps)`. x [..., cols] in fp32, fp16 or bf16,
w and b [cols] of the same dtype, fp32 inside. Differentiable once in x, w and b. Formulas and bytes:
`lanewise.kernels.rows.norm_forward_kernels`, `lanewise.kernels.rows.norm_backward_kernels`. Ba, Kiros and Hinton, Layer
Normalization, 2016.
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

__all__ = ["layer_norm", "reference"]


def reference(
    x: torch.Tensor, w: torch.Tensor | None = None, b: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b, eps)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float) -> torch.Tensor:
        out = norm_for_training(x, None, w, b, eps, rms=False, recent=_RECENT_TRAINING)
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


_RECENT = Recent("layer_norm")
_ADMITTED = Admitted()
_RECENT_TRAINING = Recent("layer_norm_training", counted=False)
