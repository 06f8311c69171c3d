"""The matrix-product kernels behind `gemm_epilogue` and `dual_gemm`.

`out = epilogue(a @ w.T)` for a [m, k] and w [n, k] (the layout of `nn.Linear`), fp16 or bf16 (fp32 through TF32 or in
full), accumulating in fp32. With a second weight, `out = act(a @ gate.T) * (a @ up.T)`: both products share the tiles
of a and their results never reach memory.

`_tiles`, for m above 64: persistent programs walk output tiles in an order that keeps the tiles of one group of rows
together in L2 (Triton's tutorials 03 and 09); operands come through Hopper's tensor memory accelerator into a ring of
shared-memory stages; the epilogue works on the fp32 accumulator in registers.

`_skinny`, for small m: the weight is read once and is all the time there is, so k is cut into `SPLIT` parts to fill the
card, and the program that finishes last adds the parts of its tile in a fixed order (deterministic; no floating-point
atomics).
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from lanewise.kernels.activations import fast_activate
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch, Remembered, sm_count
from lanewise.kernels.rows.row_layout import exchange_buffers

__all__ = ["SkinnyBlocks", "TileBlocks", "product", "skinny", "tiles"]


@triton.jit
def _tiles(
    a_desc,
    w_desc,
    u_desc,
    c_desc,
    bias_ptr,
    residual_ptr,
    m,
    n,
    k,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    DUAL: tl.constexpr,
    FAST: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    HALVES: tl.constexpr,
    FLATTEN: tl.constexpr,
    PAIR: tl.constexpr,
):
    across = tl.cdiv(n, BN)
    down = tl.cdiv(m, BM)
    for tile in tl.range(tl.program_id(0), across * down, tl.num_programs(0), flatten=FLATTEN):
        in_group = GROUP * across
        first = (tile // in_group) * GROUP
        height = min(down - first, GROUP)
        at_m = (first + (tile % in_group) % height) * BM
        at_n = ((tile % in_group) // height) * BN
        acc = tl.zeros([BM, 2 * BN if PAIR else BN], tl.float32)
        if DUAL and not PAIR:
            acc_up = tl.zeros([BM, BN], tl.float32)
        for step in range(tl.cdiv(k, BK)):
            a = a_desc.load([at_m, step * BK])
            if PAIR:
                w = tl.reshape(w_desc.load([0, at_n, step * BK]), (2 * BN, BK))
            else:
                w = w_desc.load([at_n, step * BK])
            acc = tl.dot(a, w.T, acc, input_precision=PRECISION)
            if DUAL and not PAIR:
                u = u_desc.load([at_n, step * BK])
                acc_up = tl.dot(a, u.T, acc_up, input_precision=PRECISION)
        if PAIR:
            acc, acc_up = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN)), (0, 2, 1)))
            if PAIR == 2:
                acc, acc_up = acc_up, acc
        if DUAL:
            out = fast_activate(acc, ACTIVATION, FAST) * acc_up
            c_desc.store([at_m, at_n], out.to(c_desc.dtype))
        elif HALVES == 2:
            pair = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
            left, right = tl.split(pair)
            left = _finish(
                left, at_m, at_n, bias_ptr, residual_ptr, m, n, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, FAST, BM, BN // 2
            )
            c_desc.store([at_m, at_n], left.to(c_desc.dtype))
            at_n += BN // 2
            right = _finish(
                right, at_m, at_n, bias_ptr, residual_ptr, m, n, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, FAST, BM, BN // 2
            )
            c_desc.store([at_m, at_n], right.to(c_desc.dtype))
        else:
            acc = _finish(
                acc, at_m, at_n, bias_ptr, residual_ptr, m, n, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, FAST, BM, BN
            )
            c_desc.store([at_m, at_n], acc.to(c_desc.dtype))


@triton.jit
def _finish(
    acc,
    at_m,
    at_n,
    bias_ptr,
    residual_ptr,
    m,
    n,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    FAST: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    col = at_n + tl.arange(0, BN)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + col, mask=col < n, other=0.0).to(tl.float32)[None, :]
    acc = fast_activate(acc, ACTIVATION, FAST)
    if HAS_RESIDUAL:
        row = at_m + tl.arange(0, BM).to(tl.int64)[:, None]
        inside = (row < m) & (col[None, :] < n)
        acc += tl.load(residual_ptr + row * n + col[None, :], mask=inside, other=0.0).to(tl.float32)
    return acc


@triton.jit
def _skinny(
    a_ptr,
    w_ptr,
    u_ptr,
    c_ptr,
    bias_ptr,
    residual_ptr,
    parts_ptr,
    count_ptr,
    m,
    n,
    k,
    a_stride,
    ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    DUAL: tl.constexpr,
    FAST: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
):
    at_n = tl.program_id(0) * BN
    part = tl.program_id(1)
    row = tl.arange(0, BM)
    col = at_n + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    steps = tl.cdiv(k, BK * SPLIT)
    begin = part * steps * BK
    acc = tl.zeros([BM, BN], tl.float32)
    acc_up = tl.zeros([BM, BN], tl.float32)
    w_at = col.to(tl.int64)[None, :] * k
    for step in tl.range(0, steps, num_stages=STAGES):
        at_k = begin + step * BK + inner
        a = tl.load(
            a_ptr + row[:, None] * a_stride + at_k[None, :], mask=(row[:, None] < m) & (at_k[None, :] < k), other=0.0
        )
        inside = (at_k[:, None] < k) & (col[None, :] < n)
        w = tl.load(w_ptr + at_k[:, None] + w_at, mask=inside, other=0.0, eviction_policy="evict_first")
        acc = tl.dot(a, w, acc, input_precision=PRECISION)
        if DUAL:
            u = tl.load(u_ptr + at_k[:, None] + w_at, mask=inside, other=0.0, eviction_policy="evict_first")
            acc_up = tl.dot(a, u, acc_up, input_precision=PRECISION)
    last = True
    if SPLIT > 1:
        tile = tl.program_id(0).to(tl.int64)
        here = parts_ptr + tile * (SPLIT * BM * BN * (2 if DUAL else 1)) + row[:, None] * BN + tl.arange(0, BN)[None, :]
        tl.store(here + part * (BM * BN), acc)
        if DUAL:
            tl.store(here + (SPLIT + part) * (BM * BN), acc_up)
        # All threads of this program have stored before one of them announces it.
        tl.debug_barrier()
        arrived = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu")
        last = arrived == SPLIT - 1
        if last:
            acc = tl.zeros([BM, BN], tl.float32)
            acc_up = tl.zeros([BM, BN], tl.float32)
            for other in range(SPLIT):
                acc += tl.load(here + other * (BM * BN), cache_modifier=".cg")
                if DUAL:
                    acc_up += tl.load(here + (SPLIT + other) * (BM * BN), cache_modifier=".cg")
            tl.store(count_ptr + tile, 0)
    if last:
        inside = (row[:, None] < m) & (col[None, :] < n)
        at = row.to(tl.int64)[:, None] * n + col[None, :]
        if HAS_BIAS:
            acc += tl.load(bias_ptr + col, mask=col < n, other=0.0).to(tl.float32)[None, :]
        acc = fast_activate(acc, ACTIVATION, FAST)
        if DUAL:
            acc = acc * acc_up
        if HAS_RESIDUAL:
            acc += tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=inside)


TILES_KERNEL = Kernel(_tiles)
SKINNY_KERNEL = Kernel(_skinny)


@dataclass(frozen=True, slots=True)
class TileBlocks:
    """Tile of `_tiles`: bm x bn outputs in steps of bk; `halves` = 2 stores the tile in two halves."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    group: int = 8
    halves: int = 1
    flatten: bool = False
    pair: bool = False
    """For two products: bn columns of each are one operand of 2 bn columns, so one instruction is twice as wide."""
    per_sm: int = 1
    """Programs of a multiprocessor: with two, one multiplies while the other stores."""


@dataclass(frozen=True, slots=True)
class SkinnyBlocks:
    """Tile of `_skinny`: all rows (padded to bm) x bn outputs, k in `split` parts, steps of bk."""

    bm: int
    bn: int
    bk: int
    split: int
    warps: int
    stages: int


def _precision(dtype: torch.dtype) -> str:
    if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return "ieee"


_FARTHEST = 1 << 40  # bytes: the largest stride of a tensor map


def _both(one: torch.Tensor, other: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Two matrices of one shape as a tensor of three dimensions: its outer stride is their distance in memory.

    Copies with coordinate 0 read the one that lies lower, with coordinate 1 the other; nothing between is touched.
    """
    low, high = sorted((one, other), key=lambda t: t.data_ptr())
    apart = (high.data_ptr() - low.data_ptr()) // low.element_size()
    return TensorDescriptor(low, [2, *low.shape], [apart, *low.stride()], block)


def tiles(
    a: torch.Tensor,
    w: torch.Tensor,
    up: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: int,
    out: torch.Tensor,
    blocks: TileBlocks,
) -> None:
    """out [m, n] = epilogue(a [m, k] @ w [n, k].T); needs sm 9.0, contiguous operands, k a multiple of 8."""
    m, k = a.shape
    n = w.shape[0]
    a_desc = TensorDescriptor.from_tensor(a, [blocks.bm, blocks.bk])
    pair = 0
    if up is not None and blocks.pair and 0 < abs(up.data_ptr() - w.data_ptr()) < _FARTHEST:
        pair = 1 if up.data_ptr() > w.data_ptr() else 2
        w_desc = u_desc = _both(w, up, [2, blocks.bn, blocks.bk])
    else:
        w_desc = TensorDescriptor.from_tensor(w, [blocks.bn, blocks.bk])
        u_desc = w_desc if up is None else TensorDescriptor.from_tensor(up, [blocks.bn, blocks.bk])
    c_desc = TensorDescriptor.from_tensor(out, [blocks.bm, blocks.bn // blocks.halves])
    grid = (min(blocks.per_sm * sm_count(a.device), -(-m // blocks.bm) * -(-n // blocks.bn)),)
    meta = {
        "ACTIVATION": activation,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
        "DUAL": up is not None,
        "FAST": a.dtype != torch.float32 and not INTERPRETED,
        "PRECISION": _precision(a.dtype),
        "BM": blocks.bm,
        "BN": blocks.bn,
        "BK": blocks.bk,
        "GROUP": blocks.group,
        "HALVES": blocks.halves,
        "FLATTEN": blocks.flatten,
        "PAIR": pair,
    }
    tensors: tuple[Any, ...] = (
        a_desc,
        w_desc,
        u_desc,
        c_desc,
        out if bias is None else bias,
        out if residual is None else residual,
    )
    options: dict[str, Any] = {} if INTERPRETED else {"num_warps": blocks.warps, "num_stages": blocks.stages}
    with torch.cuda.device(a.device) if a.is_cuda else torch.no_grad():
        TILES_KERNEL.fn[grid](*tensors, m, n, k, **meta, **options)


def skinny(
    a: torch.Tensor,
    w: torch.Tensor,
    up: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: int,
    out: torch.Tensor,
    blocks: SkinnyBlocks,
) -> Remembered | None:
    """out [m, n] = epilogue(a [m, k] @ w [n, k].T) for m up to `blocks.bm`. Returns a launch worth keeping, if any."""
    m, k = a.shape
    n = w.shape[0]
    across = -(-n // blocks.bn)
    split = blocks.split
    if split > 1:
        products = 1 if up is None else 2
        parts, count = exchange_buffers(a.device, products * across * split * blocks.bm * blocks.bn, across)
    else:
        parts = count = out
    tensors = (
        a,
        w,
        w if up is None else up,
        out,
        out if bias is None else bias,
        out if residual is None else residual,
        parts,
        count,
    )
    key = (
        m,
        n,
        k,
        a.stride(0),
        activation,
        bias is None,
        residual is None,
        up is None,
        a.dtype,
        a.device.index,
        blocks,
    )
    kept = SKINNY_KERNEL(
        key,
        tensors,
        lambda: Launch(
            (across, split),
            (m, n, k, a.stride(0)),
            {
                "ACTIVATION": activation,
                "HAS_BIAS": bias is not None,
                "HAS_RESIDUAL": residual is not None,
                "DUAL": up is not None,
                "FAST": a.dtype != torch.float32 and not INTERPRETED,
                "PRECISION": _precision(a.dtype),
                "BM": blocks.bm,
                "BN": blocks.bn,
                "BK": blocks.bk,
                "SPLIT": split,
                "STAGES": blocks.stages,
            },
            blocks.warps,
            blocks.stages,
        ),
    )
    return kept if split == 1 else None  # a split product has buffers of its own


def product(
    a: torch.Tensor,
    w: torch.Tensor,
    up: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: int,
    out: torch.Tensor,
    blocks: SkinnyBlocks | TileBlocks,
) -> Remembered | None:
    """`skinny` or `tiles`, as `blocks` says. Returns a launch worth keeping, if any."""
    if isinstance(blocks, SkinnyBlocks):
        return skinny(a, w, up, bias, residual, activation, out, blocks)
    tiles(a.contiguous(), w, up, bias, residual, activation, out, blocks)
    return None
