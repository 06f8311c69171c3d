"""A narrow two-layer MLP in one kernel: the hidden activation never leaves the chip.

`mlp(x, w1, b1, w2, b2, activation)` is `linear(act(linear(x, w1, b1)), w2, b2)` for x [..., d], w1 [h, d], w2 [o, h]
(the layout of `nn.Linear`), fp16 or bf16, d and o up to 256, h up to 1024. Products accumulate in fp32; the hidden
values are rounded to the input dtype before the second product, as eager does between its kernels.

Programs stay on the chip and walk blocks of rows. Where both weights fit shared memory beside the rows they are
loaded once per program; otherwise the hidden width is walked in blocks whose weights come from L2 again for every
block of rows. Bytes: x and y once, against eager's two passes over [rows, h] on top. Worth it only where that
traffic, not the arithmetic, is the time: narrow layers and many rows (tiny-cuda-nn: to width 64 a large gain, 128
moderate, 256 none); `refuse` keeps to the measured region. Inference only; Mueller et al., Real-time
neural radiance caching, 2021.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from lanewise.kernels.activations import ACTIVATIONS, fast_activate
from lanewise.kernels.dispatch import tuning
from lanewise.kernels.dispatch.eligibility import compiling, eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.dispatch.launcher import INTERPRETED, Kernel, Launch, Remembered, sm_count
from lanewise.kernels.dispatch.specialized_calls import Recent, Step
from lanewise.kernels.rows.row_layout import as_rows, next_power_of_2

__all__ = ["Blocks", "mlp", "mlp_into", "reference"]


@triton.jit
def _mlp_resident(
    x_ptr,
    w1_ptr,
    b1_ptr,
    w2_ptr,
    b2_ptr,
    y_ptr,
    rows,
    x_stride,
    D: tl.constexpr,
    H: tl.constexpr,
    O: tl.constexpr,  # noqa: E741
    DP: tl.constexpr,
    HP: tl.constexpr,
    OP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_B1: tl.constexpr,
    HAS_B2: tl.constexpr,
    FAST: tl.constexpr,
    BM: tl.constexpr,
    EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Both weights stay in shared memory while the program walks its blocks of rows."""
    d = tl.arange(0, DP)
    h = tl.arange(0, HP)
    o = tl.arange(0, OP)
    w1 = tl.load(w1_ptr + d[:, None] + h[None, :] * D, mask=(d[:, None] < D) & (h[None, :] < H), other=0.0)
    w2 = tl.load(w2_ptr + h[:, None] + o[None, :] * H, mask=(h[:, None] < H) & (o[None, :] < O), other=0.0)
    if HAS_B1:
        b1 = tl.load(b1_ptr + h, mask=h < H, other=0.0).to(tl.float32)
    if HAS_B2:
        b2 = tl.load(b2_ptr + o, mask=o < O, other=0.0).to(tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, BM), tl.num_programs(0), num_stages=STAGES):
        row = tile * BM + tl.arange(0, BM).to(tl.int64)
        if EVEN:
            x = tl.load(x_ptr + row[:, None] * x_stride + d[None, :])
        else:
            inside = (row[:, None] < rows) & (d[None, :] < D)
            x = tl.load(x_ptr + row[:, None] * x_stride + d[None, :], mask=inside, other=0.0)
        hidden = tl.dot(x, w1, input_precision="ieee")
        if HAS_B1:
            hidden += b1[None, :]
        hidden = fast_activate(hidden, ACTIVATION, FAST).to(x.dtype)
        out = tl.dot(hidden, w2, input_precision="ieee")
        if HAS_B2:
            out += b2[None, :]
        if EVEN:
            tl.store(y_ptr + row[:, None] * O + o[None, :], out.to(y_ptr.dtype.element_ty))
        else:
            inside = (row[:, None] < rows) & (o[None, :] < O)
            tl.store(y_ptr + row[:, None] * O + o[None, :], out.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _mlp_walk(
    x_ptr,
    w1_ptr,
    b1_ptr,
    w2_ptr,
    b2_ptr,
    y_ptr,
    rows,
    x_stride,
    D: tl.constexpr,
    H: tl.constexpr,
    O: tl.constexpr,  # noqa: E741
    DP: tl.constexpr,
    OP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_B1: tl.constexpr,
    HAS_B2: tl.constexpr,
    FAST: tl.constexpr,
    BM: tl.constexpr,
    EVEN: tl.constexpr,
    BH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One block of rows per program; the hidden width is walked in blocks of BH."""
    d = tl.arange(0, DP)
    o = tl.arange(0, OP)
    row = tl.program_id(0) * BM + tl.arange(0, BM).to(tl.int64)
    if EVEN:
        x = tl.load(x_ptr + row[:, None] * x_stride + d[None, :])
    else:
        inside = (row[:, None] < rows) & (d[None, :] < D)
        x = tl.load(x_ptr + row[:, None] * x_stride + d[None, :], mask=inside, other=0.0)
    out = tl.zeros([BM, OP], tl.float32)
    for start in tl.range(0, H, BH, num_stages=STAGES):
        h = start + tl.arange(0, BH)
        if EVEN:
            w1 = tl.load(w1_ptr + d[:, None] + h[None, :] * D)
            w2 = tl.load(w2_ptr + h[:, None] + o[None, :] * H)
        else:
            w1 = tl.load(w1_ptr + d[:, None] + h[None, :] * D, mask=(d[:, None] < D) & (h[None, :] < H), other=0.0)
            w2 = tl.load(w2_ptr + h[:, None] + o[None, :] * H, mask=(h[:, None] < H) & (o[None, :] < O), other=0.0)
        hidden = tl.dot(x, w1, input_precision="ieee")
        if HAS_B1:
            hidden += tl.load(b1_ptr + h, mask=h < H, other=0.0).to(tl.float32)[None, :]
        hidden = fast_activate(hidden, ACTIVATION, FAST).to(x.dtype)
        out = tl.dot(hidden, w2, out, input_precision="ieee")
    if HAS_B2:
        out += tl.load(b2_ptr + o, mask=o < O, other=0.0).to(tl.float32)[None, :]
    tl.store(
        y_ptr + row[:, None] * O + o[None, :],
        out.to(y_ptr.dtype.element_ty),
        mask=(row[:, None] < rows) & (o[None, :] < O),
    )


RESIDENT_KERNEL = Kernel(_mlp_resident)
WALK_KERNEL = Kernel(_mlp_walk)


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the work is cut: `bm` rows a block; `bh` hidden units a block, 0 keeps both weights resident."""

    bm: int
    bh: int
    warps: int
    stages: int
    per_sm: int


def default_blocks(d: int, h: int, o: int, rows: int) -> Blocks:
    """What was fastest on an H100 for the measured widths (docs/kernels.md), by the size of the weights for others."""
    weights = 2 * next_power_of_2(h) * (next_power_of_2(d) + next_power_of_2(o))
    if h > 128 and weights <= 65536:
        return Blocks(64, 64, 4, 3, 1) if rows < 32768 else Blocks(64, 64, 4, 2, 1)
    if weights <= 16384:
        return Blocks(64, 0, 4, 3, 4)
    if weights <= 65536:
        return Blocks(64, 0, 4, 2, 2)
    return Blocks(128, 64, 4, 2, 1)


def reference(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    """The plain PyTorch expression that the kernel stands in for (and the fallback)."""
    functional = torch.nn.functional
    hidden = functional.linear(x, w1, b1)
    if activation == "gelu_tanh":
        hidden = functional.gelu(hidden, approximate="tanh")
    else:
        hidden = getattr(functional, activation)(hidden)
    return functional.linear(hidden, w2, b2)


def mlp_into(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str,
    y: torch.Tensor,
    traced: bool = False,
) -> Remembered | None:
    """Write the MLP of x [..., d] into the contiguous y [..., o]."""
    flat = as_rows(x)
    rows, d = flat.shape
    h, o = w1.shape[0], w2.shape[0]
    if rows == 0:
        return None
    scalars = (rows, flat.stride(0))
    has_b1, has_b2 = b1 is not None, b2 is not None
    tensors = (flat, w1, flat if b1 is None else b1, w2, flat if b2 is None else b2, y)
    blocks = tuning.pick("mlp", (x.dtype, d, h, o, rows >= 32768), default_blocks(d, h, o, int(rows)))
    pad = {name: max(next_power_of_2(size), 16) for name, size in (("DP", d), ("HP", h), ("OP", o))}
    flags = {
        "ACTIVATION": ACTIVATIONS[activation],
        "HAS_B1": has_b1,
        "HAS_B2": has_b2,
        "FAST": not INTERPRETED,
        "BM": blocks.bm,
        "EVEN": bool(pad["DP"] == d and pad["OP"] == o and rows % blocks.bm == 0 and h % (blocks.bh or 16) == 0),
    }
    tiles = -(-rows // blocks.bm)
    if blocks.bh == 0:
        # EVEN is about rows, d and o here; the weights are loaded once and may be masked.
        kernel = RESIDENT_KERNEL
        meta = {"D": d, "H": h, "O": o, **pad, **flags, "STAGES": blocks.stages}
        grid = (min(tiles, blocks.per_sm * sm_count(x.device)),)
    else:
        kernel = WALK_KERNEL
        meta = {"D": d, "H": h, "O": o, "DP": pad["DP"], "OP": pad["OP"], **flags, "BH": blocks.bh}
        meta["STAGES"] = blocks.stages
        grid = (tiles,)
    launch = Launch(grid, scalars, meta, blocks.warps, blocks.stages)
    if traced:
        kernel.trace(tensors, launch)
        return None
    key = (scalars, d, h, o, activation, has_b1, has_b2, x.dtype, x.device.index)
    return kernel(key, tensors, lambda: launch)


def refuse(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str | None,
) -> str | None:
    """Reason why the fused kernel does not take this call, or None."""
    refused = refuse_tensor(x, w1, b1, w2, b2)
    if refused is not None:
        return refused
    if activation not in ACTIVATIONS or activation is None:
        return "activation"
    if wants_grad(x, w1, b1, w2, b2):
        return "needs gradients"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast"
    dtypes = {t.dtype for t in (x, w1, b1, w2, b2) if t is not None}
    if len(dtypes) > 1 or (x.dtype == torch.float32 and not INTERPRETED):
        return "dtype"
    if x.dim() == 0 or w1.dim() != 2 or w2.dim() != 2 or w1.shape[1] != x.shape[-1] or w2.shape[1] != w1.shape[0]:
        return "shape"
    d, h, o = x.shape[-1], w1.shape[0], w2.shape[0]
    if not (0 < d <= 256 and 0 < o <= 256 and 0 < h <= 1024):
        return "too wide"
    if not all(t.is_contiguous() for t in (w1, b1, w2, b2) if t is not None):
        return "weight layout"
    if measured_only and not INTERPRETED and not _measured(d, h, o, x.numel() // d):
        return "no measured shape where one kernel beats cuBLAS"
    return None


measured_only = True
"""Leave to PyTorch what was not measured ahead; tests of the kernels themselves set it to False."""


def _measured(d: int, h: int, o: int, rows: int) -> bool:
    """Where the kernel was ahead on an H100 and an H200 (docs/kernels.md); with few rows most of the card would idle."""
    if max(d, h, o) <= 64:
        return rows >= 512
    return max(d, o) <= 128 and h <= 512 and rows >= 8192


def mlp(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor | None,
    w2: torch.Tensor,
    b2: torch.Tensor | None,
    activation: str = "gelu_tanh",
) -> torch.Tensor:
    """Two linear layers with `activation` (relu, gelu, gelu_tanh, silu) between them, in one kernel where it pays."""
    if not compiling():
        for quick in _RECENT.get(activation):
            out = quick(x, w1, b1, w2, b2)
            if out is not None:
                return out
    refused = refuse(x, w1, b1, w2, b2, activation)
    if refused is not None:
        fell_back("mlp", refused)
        return reference(x, w1, b1, w2, b2, activation)
    hit("mlp")
    if not eager():
        return torch.ops.lanewise.mlp(x, w1, b1, w2, b2, activation)
    y = torch.empty((*x.shape[:-1], w2.shape[0]), dtype=x.dtype, device=x.device)
    kept = mlp_into(x, w1, b1, w2, b2, activation, y)
    if kept is not None and as_rows(x).data_ptr() == x.data_ptr():
        order = (0, 1, 0 if b1 is None else 2, 3, 0 if b2 is None else 4, ~0)
        _RECENT.keep(activation, (x, w1, b1, w2, b2), (y,), [Step(kept, order)], (0,))
    return y


_RECENT = Recent("mlp")
