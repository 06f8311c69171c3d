"""Element-wise operators: vector addition in three teaching versions, and the fused pairs that models are made of.

`add_plain`, `add_masked` and `add_autotuned` do the same thing as `torch.add` of two equal tensors and run at the
same speed, that of memory; they show what each step buys: no bounds check (the length must be a multiple of the
block), the bounds check, the choice of block and warps by measurement. One pointwise operator cannot be made faster
than eager, only joined with its neighbours, which is what the chains below do (see
`lanewise.kernels.pointwise_chain`):

    silu_mul(gate, up)             silu(gate) * up                   SwiGLU (Shazeer, 2020)
    gelu_mul(gate, up)             gelu(gate) * up                   GeGLU, exact; gelu_tanh_mul for the tanh form
    bias_relu(x, bias), ...        activation(x + bias)              bias [cols] broadcasts over rows
    residual_add(x, residual)      x + residual
    residual_scale_add(x, s, r)    x * s + r

All take fp32, fp16 or bf16 of any shape and strides; fp32 inside, one rounding.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lanewise.errors import UsageError
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.pointwise_chain import pointwise

__all__ = [
    "add_autotuned",
    "add_masked",
    "add_plain",
    "bias_gelu",
    "bias_gelu_tanh",
    "bias_relu",
    "bias_silu",
    "gelu_mul",
    "gelu_tanh_mul",
    "residual_add",
    "residual_scale_add",
    "silu_mul",
]

_F = torch.nn.functional


@triton.jit
def _add_plain(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(a_ptr + at) + tl.load(b_ptr + at))


@triton.jit
def _add_masked(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(a_ptr + at, mask=inside) + tl.load(b_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (2048, 8))],
    key=["bucket"],
)
@triton.jit
def _add_autotuned(a_ptr, b_ptr, out_ptr, n, bucket, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(a_ptr + at, mask=inside) + tl.load(b_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)


_PLAIN = Kernel(_add_plain)
_MASKED = Kernel(_add_masked)
_RECENT = Recent("add_masked")
_BLOCK = 1024


def _out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.shape != b.shape or a.dtype != b.dtype or not a.is_contiguous() or not b.is_contiguous():
        raise UsageError("the vector additions take two contiguous tensors of one shape and dtype")
    if not a.is_cuda and not INTERPRETED:
        raise UsageError("the vector additions run on a CUDA device")
    return torch.empty_like(a)


def add_plain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b without a bounds check: the number of elements must be a multiple of 1024."""
    out = _out(a, b)
    if a.numel() % _BLOCK:
        raise UsageError(f"add_plain needs a multiple of {_BLOCK} elements, got {a.numel()}; add_masked takes any")
    _PLAIN((a.shape, a.dtype, a.device), (a, b, out), lambda: Launch((a.numel() // _BLOCK,), (), {"BLOCK": _BLOCK}))
    return out


def add_masked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b of any length; programs past the end load and store nothing."""
    for quick in _RECENT.get(None):
        again = quick(a, b)
        if again is not None:
            return again
    out = _out(a, b)
    n = a.numel()
    key = (n, a.dtype, a.device)
    kept = _MASKED(key, (a, b, out), lambda: Launch((-(-n // _BLOCK),), (n,), {"BLOCK": _BLOCK}))
    _RECENT.keep(None, (a, b), (out,), [Step(kept, (0, 1, ~0))], (0,))
    return out


def add_autotuned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b with the block chosen by measurement, once per power of two of the length."""
    out = _out(a, b)
    n = a.numel()

    def grid(meta: dict[str, int]) -> tuple[int, ...]:
        return (triton.cdiv(n, meta["BLOCK"]),)

    if n:
        _add_autotuned[grid](a, b, out, n, n.bit_length())
    return out


@pointwise
def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return _F.silu(gate) * up


@pointwise
def gelu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return _F.gelu(gate) * up


@pointwise
def gelu_tanh_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return _F.gelu(gate, approximate="tanh") * up


@pointwise
def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return _F.relu(x + bias)


@pointwise
def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return _F.gelu(x + bias)


@pointwise
def bias_gelu_tanh(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return _F.gelu(x + bias, approximate="tanh")


@pointwise
def bias_silu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return _F.silu(x + bias)


@pointwise
def residual_add(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return x + residual


@pointwise
def residual_scale_add(x: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return x * scale + residual
