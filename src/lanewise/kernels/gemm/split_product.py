"""Single-precision products on the tensor cores, as exact as single precision: every operand in two parts of TF32.

`split_product(a, b, bias)` is `a @ b + bias` for a [m, k], b [k, n] and bias [n], all of single precision. Tensor cores
round their operands to TF32 (10 bits of mantissa). An operand is the sum of what TF32 keeps of it and what it leaves out,
which is a TF32 number nearly as exactly; of the four products of such parts the one of both rests is below single
precision's roundoff and left out, and the other three are added in single precision (Ootomo and Yokota, "Recovering
single precision accuracy from Tensor Cores", 2022; Triton's `input_precision="tf32x3"`). Three products on the tensor
cores take less time than one beside them: cuBLAS adds and multiplies in ordinary instructions unless TF32 is allowed.

On an H200 the results are 1.2 to 4 times nearer to double precision than cuBLAS's, and 1.2 to 1.7 times as fast where k is
a multiple of 32 (docs/kernels.md). FLOP: 2 m n k, by three instructions each; bytes: a, b, bias and the result once.
Inference only; gradients run the reference, and so does everything else that the kernel does not take.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from lanewise.kernels.dispatch.eligibility import fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch, sm_count

__all__ = ["SplitBlocks", "reference", "split_blocks", "split_product"]

_HAS_TF32 = (8, 0)
_GROUP = 8


@triton.jit
def _split(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    k,
    a_row,
    a_column,
    b_row,
    b_column,
    HAS_BIAS: tl.constexpr,
    EVEN_K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    across = tl.cdiv(n, BN)
    down = tl.cdiv(m, BM)
    tile = tl.program_id(0)
    in_group = GROUP * across
    first = (tile // in_group) * GROUP
    height = min(down - first, GROUP)
    at_m = (first + (tile % in_group) % height) * BM
    at_n = ((tile % in_group) // height) * BN
    row = at_m + tl.arange(0, BM)
    col = at_n + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a_ptr + row.to(tl.int64)[:, None] * a_row + inner.to(tl.int64)[None, :] * a_column
    b_at = b_ptr + col.to(tl.int64)[None, :] * b_column + inner.to(tl.int64)[:, None] * b_row
    a_inside = row[:, None] < m
    b_inside = col[None, :] < n
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(tl.cdiv(k, BK)):
        if EVEN_K:
            a = tl.load(a_at, mask=a_inside, other=0.0)
            b = tl.load(b_at, mask=b_inside, other=0.0)
        else:
            left = k - step * BK
            a = tl.load(a_at, mask=a_inside & (inner[None, :] < left), other=0.0)
            b = tl.load(b_at, mask=b_inside & (inner[:, None] < left), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
        a_at += BK * a_column
        b_at += BK * b_row
    if HAS_BIAS:
        acc += tl.load(bias_ptr + col, mask=col < n, other=0.0)[None, :]
    at = row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(c_ptr + at, acc, mask=(row[:, None] < m) & (col[None, :] < n))


SPLIT_KERNEL = Kernel(_split)


@dataclass(frozen=True, slots=True)
class SplitBlocks:
    """Tile of `_split`: bm x bn results in steps of bk."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int


def reference(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    return torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)


def split_blocks(m: int, n: int, k: int, multiprocessors: int) -> SplitBlocks:
    """Default tile: the largest of three that still gives the multiprocessors two to four tiles each; short inner
    dimensions take the middle one (fourteen shapes on an H200)."""

    def tiles(bm: int, bn: int) -> int:
        return -(-m // bm) * -(-n // bn)

    if k >= 256 and tiles(64, 128) >= 4 * multiprocessors:
        return SplitBlocks(64, 128, 64, 4, 2)
    if tiles(64, 64) >= 2 * multiprocessors:
        return SplitBlocks(64, 64, 32, 4, 4)
    return SplitBlocks(64, 32, 64, 4, 3)


def _refused(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    refused = refuse_tensor(a, b, bias)
    if refused is not None:
        return refused
    if any(one is not None and one.dtype != torch.float32 for one in (a, b, bias)):
        return "dtype"
    if torch.get_float32_matmul_precision() != "highest":
        return "TF32 is allowed"  # one product is enough then, and cuBLAS computes it
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != b.shape[1] or bias.stride(0) != 1):
        return "bias shape"
    if 0 in (*a.shape, *b.shape):
        return "empty"
    if not INTERPRETED and torch.cuda.get_device_capability(a.device) < _HAS_TF32:
        return "card without TF32"
    return None


def split_product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`a @ b + bias` [m, n] for a [m, k], b [k, n] in any strides and bias [n]; what the kernel does not take runs
    `reference`. Raises what that does for shapes that do not fit."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        return reference(a, b, bias)
    refused = "gradients" if wants_grad(a, b, bias) else _refused(a, b, bias)
    if refused is not None:
        fell_back("split_product", refused)
        return reference(a, b, bias)
    hit("split_product")
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    blocks = split_blocks(m, n, k, sm_count(a.device))
    tensors = (a, b, out if bias is None else bias, out)
    SPLIT_KERNEL(
        (m, n, k, a.stride(), b.stride(), bias is None, a.device.index),
        tensors,
        lambda: Launch(
            (-(-m // blocks.bm) * -(-n // blocks.bn),),
            (m, n, k, *a.stride(), *b.stride()),
            {
                "HAS_BIAS": bias is not None,
                "EVEN_K": k % blocks.bk == 0,
                "BM": blocks.bm,
                "BN": blocks.bn,
                "BK": blocks.bk,
                "GROUP": _GROUP,
            },
            blocks.warps,
            blocks.stages,
        ),
    )
    return out
