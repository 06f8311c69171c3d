"""RMSNorm over the last dimension.

`rms_norm(x, w, eps)` is `torch.nn.functional.rms_norm(x, (cols,), w, eps)`. x [..., cols] in fp32, fp16 or bf16, w [cols]
of the same dtype, fp32 inside. Differentiable once in x and w. Formulas and bytes:
`lanewise.kernels.rows.norm_forward_kernels`, `lanewise.kernels.rows.norm_backward_kernels`. Zhang and Sennrich, Root Mean
Square Layer Normalization, 2019.
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

__all__ = ["reference", "rms_norm"]


def reference(x: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, eps)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor | None, eps: float) -> torch.Tensor:
        out = norm_for_training(x, None, w, None, eps, rms=True, recent=_RECENT_TRAINING)
        ctx.save_for_backward(x if x.is_contiguous() else x.contiguous(), w, out.rstd)
        return out.y

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, w, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[1]
        dx, dw, _ = norm_backward(dy, None, x, w, rstd, rstd, True, need_w, False)
        return dx, dw, None


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


_RECENT = Recent("rms_norm")
_ADMITTED = Admitted()
_RECENT_TRAINING = Recent("rms_norm_training", counted=False)
