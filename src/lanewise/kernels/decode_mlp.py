"""A gated MLP for few rows (decoding, up to 8) in one launch: gate and up, their activation, and down.

`y = (act(x @ gate.T) * (x @ up.T)) @ down.T` for x [m, d], gate and up [h, d], down [o, h], fp16 or bf16, accumulating
in fp32. The time is that of reading three weights once. As many programs as the card holds at once compute the hidden
values tile by tile, meet at a barrier across the card (a counter; the launch is cooperative, so all of them run), and
compute the output: k is cut into SPLIT parts, and the program that finishes a tile last adds its parts in a fixed order
(deterministic). Hidden values and parts go through L2.

Where such a launch is not to be had the same kernel runs as two launches, one for each phase.

FLOP: 2 m h (2 d + o); bytes: x, the three weights and y once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from lanewise.kernels import tuning
from lanewise.kernels.activations import ACTIVATIONS, fast_activate
from lanewise.kernels.dual_gemm import gated_linear, refuse_gated
from lanewise.kernels.dual_gemm import reference as gated_reference
from lanewise.kernels.guard import eager, fell_back, hit, refuse_tensor, wants_grad
from lanewise.kernels.launch import INTERPRETED, Kernel, Launch, NoRoomError, direct, sm_count
from lanewise.kernels.rowwise import as_rows, exchange_buffers

__all__ = ["DECODE_KERNEL", "DecodeBlocks", "decode_mlp_into", "default_blocks", "gated_mlp", "reference"]

_FUSED, _HIDDEN, _OUT = 0, 1, 2


@triton.jit
def _decode(
    x_ptr,
    gate_ptr,
    up_ptr,
    down_ptr,
    hidden_ptr,
    y_ptr,
    parts_ptr,
    count_ptr,
    m,
    d,
    h,
    o,
    x_stride,
    ACTIVATION: tl.constexpr,
    FAST: tl.constexpr,
    BM: tl.constexpr,
    BH: tl.constexpr,
    BD: tl.constexpr,
    BO: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
    PHASE: tl.constexpr,
):
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    row = tl.arange(0, BM)
    known = row[:, None] < m
    if PHASE != 2:
        for tile in range(program, tl.cdiv(h, BH), programs):
            col = tile * BH + tl.arange(0, BH)
            at = col.to(tl.int64)[None, :] * d
            left = tl.zeros([BM, BH], tl.float32)
            right = tl.zeros([BM, BH], tl.float32)
            for start in tl.range(0, d, BD, num_stages=STAGES):
                k = start + tl.arange(0, BD)
                x = tl.load(x_ptr + row[:, None] * x_stride + k[None, :], mask=known & (k[None, :] < d), other=0.0)
                inside = (k[:, None] < d) & (col[None, :] < h)
                gate = tl.load(gate_ptr + k[:, None] + at, mask=inside, other=0.0, eviction_policy="evict_first")
                left = tl.dot(x, gate, left, input_precision="ieee")
                up = tl.load(up_ptr + k[:, None] + at, mask=inside, other=0.0, eviction_policy="evict_first")
                right = tl.dot(x, up, right, input_precision="ieee")
            value = (fast_activate(left, ACTIVATION, FAST) * right).to(hidden_ptr.dtype.element_ty)
            tl.store(hidden_ptr + row[:, None] * h + col[None, :], value, mask=known & (col[None, :] < h))
    if PHASE == 0:
        # What this program will read of `down` first comes into L2 while the others finish: 1 KB of each column's row.
        unit = tl.minimum(program, tl.cdiv(o, BO) * SPLIT - 1)
        ahead = tl.minimum((unit % SPLIT) * tl.cdiv(h, BK * SPLIT) * BK + tl.arange(0, 8) * 64, h - 1)
        ahead_col = tl.minimum((unit // SPLIT) * BO + tl.arange(0, BO), o - 1).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [down_ptr + ahead_col[:, None] * h + ahead[None, :]],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
        # All programs have stored their hidden values before any of them goes on.
        tl.debug_barrier()
        tl.atomic_add(count_ptr, 1, sem="acq_rel", scope="gpu")
        while tl.atomic_add(count_ptr, 0, sem="acquire", scope="gpu") < programs:
            pass
        tl.debug_barrier()
        if tl.atomic_add(count_ptr + 1, 1, sem="acq_rel", scope="gpu") == programs - 1:
            tl.store(count_ptr, 0)  # whoever comes last leaves the counters as they were found
            tl.store(count_ptr + 1, 0)
    if PHASE != 1:
        tiles = tl.cdiv(o, BO)
        steps = tl.cdiv(h, BK * SPLIT)
        for unit in range(program, tiles * SPLIT, programs):
            tile = unit // SPLIT
            part = unit % SPLIT
            col = tile * BO + tl.arange(0, BO)
            at = col.to(tl.int64)[None, :] * h
            out = tl.zeros([BM, BO], tl.float32)
            for step in tl.range(0, steps, num_stages=STAGES):
                k = (part * steps + step) * BK + tl.arange(0, BK)
                value = tl.load(
                    hidden_ptr + row[:, None] * h + k[None, :],
                    mask=known & (k[None, :] < h),
                    other=0.0,
                    cache_modifier=".cg",
                )
                inside = (k[:, None] < h) & (col[None, :] < o)
                down = tl.load(down_ptr + k[:, None] + at, mask=inside, other=0.0, eviction_policy="evict_first")
                out = tl.dot(value, down, out, input_precision="ieee")
            inside = known & (col[None, :] < o)
            last = True
            if SPLIT > 1:
                here = parts_ptr + tile.to(tl.int64) * (SPLIT * BM * BO)
                here += row[:, None] * BO + tl.arange(0, BO)[None, :]
                tl.store(here + part * (BM * BO), out)
                tl.debug_barrier()
                last = tl.atomic_add(count_ptr + 2 + tile, 1, sem="acq_rel", scope="gpu") == SPLIT - 1
                if last:
                    out = tl.zeros([BM, BO], tl.float32)
                    for other in range(SPLIT):
                        out += tl.load(here + other * (BM * BO), cache_modifier=".cg")
                    tl.store(count_ptr + 2 + tile, 0)
            if last:
                to = y_ptr + row[:, None] * o + col[None, :]
                tl.store(to, out.to(y_ptr.dtype.element_ty), mask=inside)


DECODE_KERNEL = Kernel(_decode)


@dataclass(frozen=True, slots=True)
class DecodeBlocks:
    """`bh` hidden values a tile in steps of `bd`; `bo` outputs a tile, k in `split` parts, steps of `bk`.

    `per_sm` programs on each multiprocessor, all of which must fit at once; `fused` takes one launch for both phases.
    """

    bh: int
    bd: int
    bo: int
    bk: int
    split: int
    warps: int
    stages: int
    per_sm: int
    fused: bool = True


def default_blocks(d: int, h: int, o: int) -> DecodeBlocks:
    """Tiles of 32 and as many parts of k as give each program of the card about one unit of work."""
    split = 1
    while -(-o // 32) * split < 256 and split < 16 and h // (split * 2) >= 256:
        split *= 2
    return DecodeBlocks(32, 128, 32, 128, split, 4, 3, 3)


_NO_ROOM: set[DecodeBlocks] = set()


def decode_mlp_into(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    y: torch.Tensor,
    blocks: DecodeBlocks,
) -> None:
    """Write the MLP of x [m, d] with unit stride in the row, m up to 16, into the contiguous y [m, o]."""
    m, d = x.shape
    h, o = down.shape[1], down.shape[0]
    hidden = torch.empty((m, h), dtype=x.dtype, device=x.device)
    tiles, split = -(-o // blocks.bo), blocks.split
    parts, count = exchange_buffers(x.device, tiles * split * 16 * blocks.bo, tiles + 2)
    tensors = (x, gate, up, down, hidden, y, parts, count)
    meta: dict[str, Any] = {
        "ACTIVATION": ACTIVATIONS[activation],
        "FAST": not INTERPRETED,
        "BM": 16,
        "BH": blocks.bh,
        "BD": blocks.bd,
        "BO": blocks.bo,
        "BK": blocks.bk,
        "SPLIT": split,
        "STAGES": blocks.stages,
    }
    most = blocks.per_sm * sm_count(x.device)
    work = {_FUSED: max(-(-h // blocks.bh), tiles * split), _HIDDEN: -(-h // blocks.bh), _OUT: tiles * split}
    scalars = (m, d, h, o, x.stride(0))

    def go(phase: int) -> None:
        # Evenly loaded: as many programs as make the rounds that are needed full.
        rounds = -(-work[phase] // most)
        grid = (-(-work[phase] // rounds),) if phase == _FUSED else (work[phase],)
        launch = Launch(
            grid,
            scalars,
            {**meta, "PHASE": phase},
            blocks.warps,
            blocks.stages,
            cooperative=phase == _FUSED,
        )
        DECODE_KERNEL((scalars, activation, x.dtype, x.device.index, blocks, phase), tensors, lambda: launch)

    if blocks.fused and x.is_cuda and direct() and blocks not in _NO_ROOM:
        try:
            go(_FUSED)
            return
        except NoRoomError:
            _NO_ROOM.add(blocks)
    go(_HIDDEN)
    go(_OUT)


def reference(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str = "silu"
) -> torch.Tensor:
    """The plain PyTorch expression that the fused paths stand in for (and the fallback)."""
    return torch.nn.functional.linear(gated_reference(x, gate, up, activation), down)


def gated_mlp(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str = "silu"
) -> torch.Tensor:
    """(act(x @ gate.T) * (x @ up.T)) @ down.T; silu, gelu or gelu_tanh, by the fastest exact path for the shape."""
    refused = _refuse(x, gate, up, down, activation)
    if refused is not None:
        fell_back("gated_mlp", refused)
        return torch.nn.functional.linear(gated_linear(x, gate, up, activation), down)
    hit("gated_mlp")
    flat = as_rows(x)
    (m, d), (o, h) = flat.shape, down.shape
    y = torch.empty((*x.shape[:-1], o), dtype=x.dtype, device=x.device)
    blocks = tuning.pick("decode_mlp", (d, h, o, x.dtype), default_blocks(d, h, o))
    decode_mlp_into(flat, gate, up, down, activation, y.view(m, o), blocks)
    return y


def _refuse(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, activation: str) -> str | None:
    refused = refuse_gated(x, gate, up, activation) or refuse_tensor(x, down)
    if refused is not None:
        return refused
    if not eager():
        return "traced: the compiler fuses the pointwise part itself"
    if wants_grad(down):
        return "needs gradients"
    if down.dim() != 2 or down.shape[1] != gate.shape[0] or not down.is_contiguous() or down.dtype != x.dtype:
        return "weight layout"
    if not 0 < x.numel() // x.shape[-1] <= _MOST_ROWS or 0 in gate.shape or down.shape[0] == 0:
        return "rows"
    if INTERPRETED:
        return None
    if x.dtype == torch.float32 or torch.cuda.get_device_capability(x.device) != (9, 0):
        return "dtype or card not measured"
    return None if not down.data_ptr() % 16 and not down.shape[0] % 8 else "alignment"


_MOST_ROWS = 8
