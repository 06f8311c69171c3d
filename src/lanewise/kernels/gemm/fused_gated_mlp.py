"""A gated MLP (SwiGLU, GeGLU): gate, up and their activation in one launch, down in another.

`gated_mlp(x, gate, up, down, activation)` is `(act(x @ gate.T) * (x @ up.T)) @ down.T` for x [..., d], gate and up
[h, d], down [o, h]. The first half is `lanewise.kernels.gemm.dual_gemm`. For few rows (decoding) the second is a product
whose time is that of reading the weight; where that weight is small, cuBLAS leaves most of the card idle, and k is cut
into parts so that each multiprocessor has some (`lanewise.kernels.gemm.matmul`, deterministic).

One launch for everything, with a barrier across the card between the halves, was slower than these two
(docs/kernels.md).

FLOP: 2 m h (2 d + o); bytes: x, the three weights and y once, the hidden values twice. Inference only.
"""

from __future__ import annotations

import torch

from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.eligibility import eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED
from lanewise.kernels.gemm.dual_gemm import gated_linear
from lanewise.kernels.gemm.dual_gemm import reference as gated_reference
from lanewise.kernels.gemm.gemm_epilogue import skinny_blocks
from lanewise.kernels.gemm.matmul import product
from lanewise.kernels.rows.row_layout import as_rows

__all__ = ["gated_mlp", "reference"]

_MOST_ROWS = 8
_LARGEST = 2048 * 5632
"""Elements of `down` up to which the cut product was measured faster than cuBLAS (not so at 4096 x 14336)."""


def reference(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str = "silu"
) -> torch.Tensor:
    """The plain PyTorch expression that the fused paths stand in for (and the fallback)."""
    return torch.nn.functional.linear(gated_reference(x, gate, up, activation), down)


def gated_mlp(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str = "silu"
) -> torch.Tensor:
    """(act(x @ gate.T) * (x @ up.T)) @ down.T by the fastest exact path known for the shape; silu, gelu, gelu_tanh."""
    hidden = gated_linear(x, gate, up, activation)
    refused = _refuse(hidden, down)
    if refused is not None:
        fell_back("gated_mlp", refused)
        return torch.nn.functional.linear(hidden, down)
    hit("gated_mlp")
    flat = as_rows(hidden)
    (m, h), o = flat.shape, down.shape[0]
    y = torch.empty((*x.shape[:-1], o), dtype=x.dtype, device=x.device)
    blocks = tuning.pick("skinny", (m, o, h, x.dtype, False), skinny_blocks(m, o, h))
    product(flat, down, None, None, None, 0, y.view(m, o), blocks)
    return y


def _refuse(hidden: torch.Tensor, down: torch.Tensor) -> str | None:
    refused = refuse_tensor(hidden, down)
    if refused is not None:
        return refused
    if not eager():
        return "traced: the compiler's own products"
    if wants_grad(hidden, down):
        return "needs gradients"
    if torch.is_autocast_enabled(hidden.device.type):
        return "autocast"
    if down.dim() != 2 or down.shape[1] != hidden.shape[-1] or down.dtype != hidden.dtype or not down.is_contiguous():
        return "weight layout"
    if hidden.numel() == 0 or down.numel() == 0 or hidden.numel() // hidden.shape[-1] > _MOST_ROWS:
        return "rows"
    if INTERPRETED:
        return None
    if hidden.dtype == torch.float32 or torch.cuda.get_device_capability(hidden.device) != (9, 0):
        return "dtype or card not measured"
    if down.numel() > _LARGEST:
        return "cuBLAS is as fast here"
    return None if not down.data_ptr() % 16 and not (down.shape[0] | down.shape[1]) % 8 else "alignment"
