"""Gate and up projections with the gated activation, as one kernel: the first half of a SwiGLU or GeGLU MLP.

`gated_linear(x, gate, up, activation)` is `act(x @ gate.T) * (x @ up.T)` for x [..., k], gate and up [n, k]. One pass
over x for both products, and neither product goes to memory. For few rows the time is that of reading both weights
once (`_skinny`); for many rows it is cuBLAS's arithmetic against Triton's, and the two extra passes that fusion saves
are a few percent of it, so there the fused kernel is used only where it was measured faster.

FLOP: 4 m n k; bytes: x, both weights and out once. Inference only. Shazeer, GLU Variants Improve Transformer, 2020.
"""

from __future__ import annotations

import torch

from lanewise.kernels.activations import ACTIVATIONS
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.eligibility import compiling, eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.elementwise import gelu_mul, gelu_tanh_mul, silu_mul
from lanewise.kernels.gemm.gemm_epilogue import Route, skinny_blocks
from lanewise.kernels.gemm.matmul import TileBlocks, product
from lanewise.kernels.rows.row_layout import as_rows

__all__ = ["gated_linear", "reference", "refuse_gated", "route"]

_GATED = {"silu": silu_mul, "gelu": gelu_mul, "gelu_tanh": gelu_tanh_mul}
_SKINNY_ROWS = 64


def reference(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """The plain PyTorch expression that the fused paths stand in for (and the fallback)."""
    functional = torch.nn.functional
    left = functional.linear(x, gate)
    if activation == "gelu_tanh":
        left = functional.gelu(left, approximate="tanh")
    else:
        left = getattr(functional, activation)(left)
    return left * functional.linear(x, up)


def route(m: int, n: int, k: int, dtype: torch.dtype) -> Route:
    """Where a gated product of that shape goes: "skinny", "tiles" or "cublas" (two products, one pointwise kernel)."""
    if dtype == torch.float32:
        return Route("cublas", "fp32 products are left to cuBLAS")
    default = Route("cublas", "two cuBLAS products and one fused pointwise kernel")
    if m <= _SKINNY_ROWS:
        default = Route("skinny", "few rows: both weights are read once, x is shared")
    elif _measured(m, n, k, dtype):
        default = Route("tiles", "one pass over x, and neither product goes to memory")
    return tuning.pick("gated_linear", (m, n, k, dtype), default)


def _measured(m: int, n: int, k: int, dtype: torch.dtype) -> bool:
    """Where the fused products beat cuBLAS and torch.compile on an H100: see docs/kernels.md."""
    if INTERPRETED or dtype != torch.bfloat16 or torch.cuda.get_device_capability() != (9, 0):
        return False
    return m >= 512 and n >= 8192 and k >= 2048


def gated_blocks(m: int, n: int) -> TileBlocks:
    """Default tile for many rows: one operand of 256 columns, flattened loops, tall groups where there are many rows."""
    return TileBlocks(128, 128, 64, 8, 4, 16 if m >= 1024 else 8, 1, True, True)


def gated_linear(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """act(x @ gate.T) * (x @ up.T) by the fastest exact path known for the shape."""
    if not compiling():
        for quick in _RECENT.get(activation):
            again = quick(x, gate, up)
            if again is not None:
                return again
    refused = refuse_gated(x, gate, up, activation)
    if refused is not None:
        fell_back("gated_linear", refused)
        return reference(x, gate, up, activation)
    if not eager():
        fell_back("gated_linear", "traced: the compiler fuses the pointwise part itself")
        return reference(x, gate, up, activation)
    flat = as_rows(x)
    m, k = flat.shape
    n = gate.shape[0]
    path = route(m, n, k, x.dtype).path
    hit("gated_linear")
    if path == "cublas" or m == 0 or n == 0:
        functional = torch.nn.functional
        return _GATED[activation](functional.linear(x, gate), functional.linear(x, up))
    out = torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)
    code = ACTIVATIONS[activation]
    default = skinny_blocks(m, n, k, dual=True) if path == "skinny" else gated_blocks(m, n)
    blocks = tuning.pick(path, (m, n, k, x.dtype, True), default)
    kept = product(flat, gate, up, None, None, code, out.view(m, n), blocks)
    if kept is not None and flat.data_ptr() == x.data_ptr():
        _RECENT.keep(activation, (x, gate, up), (out,), [Step(kept, (0, 1, 2, ~0, ~0, ~0, ~0, ~0))], (0,))
    return out


_RECENT = Recent("gated_linear")


def refuse_gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str) -> str | None:
    """Reason why no fused product takes this call, or None."""
    refused = refuse_tensor(x, gate, up)
    if refused is not None:
        return refused
    if activation not in _GATED:
        return "activation"
    if wants_grad(x, gate, up):
        return "needs gradients"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast"
    if len({x.dtype, gate.dtype, up.dtype}) > 1:
        return "mixed dtypes"
    if x.dim() == 0 or gate.dim() != 2 or gate.shape != up.shape or gate.shape[1] != x.shape[-1] or x.shape[-1] == 0:
        return "shape"
    if not gate.is_contiguous() or not up.is_contiguous():
        return "weight layout"
    if not INTERPRETED and (
        gate.data_ptr() % 16 or up.data_ptr() % 16 or x.data_ptr() % 16 or x.shape[-1] % 8 or gate.shape[0] % 8
    ):
        return "alignment"
    return None
