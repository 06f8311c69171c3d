"""A batch of linear layers, each with its own weight, with bias and activation fused in: experts, ensembles, heads.

`batched_linear_act(x, w, bias, activation)` is `act(bmm(x, w.transpose(1, 2)) + bias[:, None, :])` for x [b, m, k],
w [b, n, k] and bias [b, n], fp16 or bf16, accumulating in fp32. cuBLAS has no epilogue for batches, so eager and
torch.compile write the products, read them, and write again; for short inner dimensions (k to about a thousand) that
traffic is the time. Persistent programs walk the tiles of all matrices, operands come through Hopper's tensor memory
accelerator by descriptors of three dimensions, and a tile at the edge of one matrix never touches the next.

FLOP: 2 b m n k; bytes: x, w, bias and out once. Inference only; gradients run the reference.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from lanewise.kernels.activations import ACTIVATIONS, fast_activate
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.eligibility import eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, sm_count
from lanewise.kernels.gemm.matmul import TileBlocks

__all__ = ["batched_blocks", "batched_into", "batched_linear_act", "reference"]

_LONGEST = 1024
"""Longest inner dimension for which the fused kernel is taken: 1.7 times the best other there, 2.9 times at 64, on an
H200 (docs/kernels.md); beyond it was not measured."""
_LEAST = 1 << 24
"""Fewest results for which it is: below, the launch of a kernel with descriptors costs the host more than it saves."""


@triton.jit
def _batched(
    a_desc,
    w_desc,
    c_desc,
    bias_ptr,
    batch,
    m,
    n,
    k,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    FAST: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    HALVES: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    across = tl.cdiv(n, BN)
    down = tl.cdiv(m, BM)
    each = across * down
    for index in tl.range(tl.program_id(0), batch * each, tl.num_programs(0), flatten=FLATTEN):
        matrix = index // each
        tile = index % each
        in_group = GROUP * across
        first = (tile // in_group) * GROUP
        height = min(down - first, GROUP)
        at_m = (first + (tile % in_group) % height) * BM
        at_n = ((tile % in_group) // height) * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for step in range(tl.cdiv(k, BK)):
            a = tl.reshape(a_desc.load([matrix, at_m, step * BK]), (BM, BK))
            w = tl.reshape(w_desc.load([matrix, at_n, step * BK]), (BN, BK))
            acc = tl.dot(a, w.T, acc, input_precision="ieee")
        bias = bias_ptr + matrix.to(tl.int64) * n
        if HALVES == 2:
            left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
            left = _finished(left, bias, at_n, n, ACTIVATION, HAS_BIAS, FAST, BN // 2).to(c_desc.dtype)
            c_desc.store([matrix, at_m, at_n], tl.reshape(left, (1, BM, BN // 2)))
            at_n += BN // 2
            right = _finished(right, bias, at_n, n, ACTIVATION, HAS_BIAS, FAST, BN // 2).to(c_desc.dtype)
            c_desc.store([matrix, at_m, at_n], tl.reshape(right, (1, BM, BN // 2)))
        else:
            acc = _finished(acc, bias, at_n, n, ACTIVATION, HAS_BIAS, FAST, BN).to(c_desc.dtype)
            c_desc.store([matrix, at_m, at_n], tl.reshape(acc, (1, BM, BN)))


@triton.jit
def _finished(
    acc, bias, at_n, n, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, FAST: tl.constexpr, BN: tl.constexpr
):
    if HAS_BIAS:
        col = at_n + tl.arange(0, BN)
        acc += tl.load(bias + col, mask=col < n, other=0.0).to(tl.float32)[None, :]
    return fast_activate(acc, ACTIVATION, FAST)


BATCHED_KERNEL = Kernel(_batched)


def reference(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    functional = torch.nn.functional
    weight = w.transpose(1, 2)
    out = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias[:, None, :], x, weight)
    if activation == "gelu_tanh":
        return functional.gelu(out, approximate="tanh")
    return out if activation is None else getattr(functional, activation)(out)


def batched_blocks(m: int, n: int) -> TileBlocks:
    """Default tile: two programs of 128 x 128 a multiprocessor, so that one multiplies while the other stores."""
    return TileBlocks(128, 128, 64, 4, 3, 8, 2, True, False, 2)


def batched_into(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, activation: int, out: torch.Tensor, blocks: TileBlocks
) -> None:
    """Write the layers' results into `out` [b, m, n]; needs sm 9.0, contiguous operands, n and k multiples of 8."""
    batch, m, k = x.shape
    n = w.shape[1]
    grid = (min(blocks.per_sm * sm_count(x.device), batch * -(-m // blocks.bm) * -(-n // blocks.bn)),)
    meta: dict[str, Any] = {
        "ACTIVATION": activation,
        "HAS_BIAS": bias is not None,
        "FAST": not INTERPRETED,
        "BM": blocks.bm,
        "BN": blocks.bn,
        "BK": blocks.bk,
        "GROUP": blocks.group,
        "HALVES": blocks.halves,
        "FLATTEN": blocks.flatten,
    }
    options: dict[str, Any] = {} if INTERPRETED else {"num_warps": blocks.warps, "num_stages": blocks.stages}
    with torch.cuda.device(x.device) if x.is_cuda else torch.no_grad():
        BATCHED_KERNEL.fn[grid](
            TensorDescriptor.from_tensor(x, [1, blocks.bm, blocks.bk]),
            TensorDescriptor.from_tensor(w, [1, blocks.bn, blocks.bk]),
            TensorDescriptor.from_tensor(out, [1, blocks.bm, blocks.bn // blocks.halves]),
            out if bias is None else bias,
            batch,
            m,
            n,
            k,
            **meta,
            **options,
        )


def batched_linear_act(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """act(x[i] @ w[i].T + bias[i]) for every i; relu, gelu, gelu_tanh, silu or no activation."""
    refused = _refuse(x, w, bias, activation)
    if refused is not None:
        fell_back("batched_linear_act", refused)
        return reference(x, w, bias, activation)
    hit("batched_linear_act")
    (batch, m, k), n = x.shape, w.shape[1]
    out = torch.empty((batch, m, n), dtype=x.dtype, device=x.device)
    blocks = tuning.pick("batched", (batch, m, n, k, x.dtype), batched_blocks(m, n))
    batched_into(x, w, bias, ACTIVATIONS[activation], out, blocks)
    return out


def _refuse(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> str | None:
    refused = refuse_tensor(x, w, bias)
    if refused is not None:
        return refused
    if activation not in ACTIVATIONS:
        return "activation"
    if not eager():
        return "traced: the compiler fuses the pointwise part itself"
    if wants_grad(x, w, bias):
        return "needs gradients"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast"
    if len({t.dtype for t in (x, w, bias) if t is not None}) > 1 or (x.dtype == torch.float32 and not INTERPRETED):
        return "dtype"
    if x.dim() != 3 or w.dim() != 3 or x.shape[0] != w.shape[0] or x.shape[2] != w.shape[2] or 0 in x.shape:
        return "shape"
    if w.shape[1] == 0 or (bias is not None and bias.shape != w.shape[:2]):
        return "shape"
    if not all(t.is_contiguous() for t in (x, w, bias) if t is not None):
        return "layout"
    if bias is None and activation is None:
        return "nothing to fuse"
    if INTERPRETED:
        return None
    if torch.cuda.get_device_capability(x.device) != (9, 0):
        return "card not measured"
    if x.data_ptr() % 16 or w.data_ptr() % 16 or x.shape[2] % 8 or w.shape[1] % 8:
        return "alignment"
    if x.shape[2] > _LONGEST or x.shape[0] * x.shape[1] * w.shape[1] < _LEAST:
        return "no measured shape where the fused kernel beats cuBLAS and eager"
    return None
