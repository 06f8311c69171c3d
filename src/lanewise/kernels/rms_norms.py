"""RMSNorm over the last dimension, alone or after adding a residual.

`rms_norm(x, w, eps)` is `torch.nn.functional.rms_norm(x, (cols,), w, eps)`; `add_rms_norm(x, residual, w, eps)`
returns that of `x + residual` together with the sum. x [..., cols] in fp32, fp16 or bf16, w [cols] of the same dtype,
fp32 inside. Differentiable once in x, residual and w. Kernels, formulas and bytes: `lanewise.kernels.norm_kernels`.
Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from lanewise.kernels.guard import compiling, eager, fell_back, hit, host_bound, refuse_norm, wants_grad
from lanewise.kernels.norm_kernels import NormOutputs, norm_backward, norm_forward
from lanewise.kernels.quick import Recent

__all__ = ["add_rms_norm", "reference", "rms_norm"]


def reference(x: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, eps)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor | None, w: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for quick in _RECENT_TRAINING.get(eps):
            again = quick(x, residual, w, None)
            if again is not None:
                out = NormOutputs(*again)
                break
        else:
            out = norm_forward(x, residual, w, None, eps, rms=True, save=True, recent=_RECENT_TRAINING)
        kept = x.contiguous() if residual is None else out.total
        ctx.save_for_backward(kept, w, out.rstd)
        ctx.added = residual is not None
        return (out.y, out.total) if residual is not None else (out.y, out.y.new_empty(0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor, ds: torch.Tensor) -> tuple[Any, ...]:
        x, w, rstd = ctx.saved_tensors
        need_w = w is not None and ctx.needs_input_grad[2]
        grads = norm_backward(dy, ds if ctx.added else None, x, w, rstd, rstd, True, need_w, False)
        return grads.dx, grads.dx if ctx.added else None, grads.dw, None


def rms_norm(x: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm of `x` over its last dimension with weight `w`."""
    if not compiling():
        for quick in _RECENT.get(eps):
            out = quick(x, None, w, None)
            if out is not None:
                return out
    refused = refuse_norm(x, w)
    if refused is None and eager() and wants_grad(x, w) and host_bound(x):
        refused = "host-bound with gradients"
    if refused is not None:
        fell_back("rms_norm", refused)
        return reference(x, w, eps)
    hit("rms_norm")
    if not eager():
        return torch.ops.lanewise.rms_norm(x, w, eps)[0]
    if wants_grad(x, w):
        return _RmsNorm.apply(x, None, w, eps)[0]  # pyright: ignore[reportOptionalSubscript]
    return norm_forward(x, None, w, None, eps, rms=True, save=False, recent=_RECENT).y


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMSNorm of `x + residual`, `x + residual`), the sum rounded to the dtype of x before it is normalised."""
    if not compiling():
        for quick in _RECENT_ADD.get(eps):
            out = quick(x, residual, w, None)
            if out is not None:
                return out
    refused = refuse_norm(x, w, residual)
    if refused is None and eager() and wants_grad(x, w, residual) and host_bound(x):
        refused = "host-bound with gradients"
    if refused is not None:
        fell_back("add_rms_norm", refused)
        total = x + residual
        return reference(total, w, eps), total
    hit("add_rms_norm")
    if not eager():
        y, total, _ = torch.ops.lanewise.add_rms_norm(x, residual, w, eps)
        return y, total
    if wants_grad(x, residual, w):
        return _RmsNorm.apply(x, residual, w, eps)  # pyright: ignore[reportReturnType]
    out = norm_forward(x, residual, w, None, eps, rms=True, save=False, recent=_RECENT_ADD)
    return out.y, out.total


_RECENT = Recent("rms_norm")
_RECENT_ADD = Recent("add_rms_norm")
_RECENT_TRAINING = Recent("rms_norm_training", counted=False)
