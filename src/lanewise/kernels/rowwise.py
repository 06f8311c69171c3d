"""What the row-wise kernels share: how rows are laid out, how programs that share a row wait for each other.

A row that fits one program is kept in registers: one read, one write. A longer row is cut into parts; the programs of
one row exchange a few floats through global memory and wait for each other, so that the row still moves through memory
once in each direction (a program that walks its row twice reads it again from L2 or, when the rows in flight exceed L2,
from memory). All programs of such a launch are resident at once (a cooperative launch), each group walks its rows, and
the partial results are combined in a fixed order, so the result is deterministic.

Where that launch is not to be had (tracing by torch.compile, the interpreter, more parts than the card has room for)
the same kernel runs as two launches, statistics and then output, which reads the row twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from lanewise.kernels.launch import INTERPRETED, Kernel, Launch, NoRoomError, sm_count

__all__ = [
    "APPLY",
    "FUSED",
    "STATS",
    "WIDEST_ROW",
    "Layout",
    "as_rows",
    "depart",
    "exchange_buffers",
    "launch_split",
    "layout",
    "meet",
    "next_power_of_2",
    "rows_launch",
    "trace_split",
]

FUSED, STATS, APPLY = 0, 1, 2

WIDEST_ROW = 16384  # up to here a row is one program's whatever the tuner says
_WIDEST_WHOLE = 32768  # columns that one program keeps by default


def next_power_of_2(n: int) -> int:
    return 1 << max(int(n) - 1, 0).bit_length()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row of `cols` elements is spread: `rows` rows a program, `block` columns, `parts` programs a row."""

    rows: int
    block: int
    parts: int
    warps: int
    persistent: int = 0
    """Programs per multiprocessor that walk the tiles; 0 launches one program per tile. For a row in parts: programs
    per multiprocessor, 0 meaning 2."""
    stages: int = 1
    """Tiles in flight through shared memory while walking (software pipelining); 1 turns it off."""
    registers: int = 0
    """Bound on the registers of a thread; 0 leaves it to the compiler."""


def layout(cols: int, kernel: str = "softmax") -> Layout:
    """Default layout for `cols` columns: what was fastest, or within noise of it, on an H100 (docs/kernels.md).

    To 2048 columns a program holds at least 2048 elements with four warps; from there one row, with 8 to 64 elements a
    thread. Longer rows are cut into parts: two programs of 16384 elements a multiprocessor where registers allow, one
    where a second full-width input or two weight vectors have to be held as well.
    """
    cols = int(cols)  # under tracing: the width is part of the model, the compiled code holds for this one
    block = max(next_power_of_2(cols), 16)
    if block > _WIDEST_WHOLE:
        part, warps, per_sm = _PARTS.get(kernel, (16384, 16, 2))
        return Layout(1, part, -(-cols // part), warps, per_sm)
    if block <= 2048:
        rows = max(1, 2048 // block)
        return Layout(rows, block, 1, min(max(rows * block // 512, 1), 4))
    if block == 16384 and kernel == "layer_norm":
        return Layout(1, block, 1, 8)
    if block == 32768:
        return Layout(1, block, 1, 16 if kernel == "softmax" else 32)
    return Layout(1, block, 1, 16 if block == 16384 else 8)


_PARTS = {
    "layer_norm": (16384, 16, 1),
    "add_norm": (8192, 16, 2),
    "softmax_backward": (16384, 16, 1),
}


def rows_launch(
    rows: int, cols: int, shape: Layout, scalars: tuple[int | float, ...], meta: dict[str, Any], device: torch.device
) -> Launch:
    """Launch of a kernel that walks tiles of `shape.rows` whole rows."""
    if shape.parts != 1 or shape.block < cols:
        raise ValueError(f"{shape} does not hold a row of {cols} columns")
    tiles = -(-rows // shape.rows)
    if shape.persistent:
        tiles = min(tiles, shape.persistent * sm_count(device))
    meta = {**meta, "ROWS": shape.rows, "BLOCK": shape.block, "STAGES": shape.stages}
    return Launch((tiles,), scalars, meta, shape.warps, shape.stages, 0, shape.registers)


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """`x` as [rows, cols] with unit stride in the row; copies only if the layout leaves no other way."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x
    cols = x.shape[-1] if x.dim() else 1
    if x.is_contiguous():
        return x.view(-1, cols) if cols else x.reshape(x.numel(), cols)
    flat = x.reshape(-1, cols)
    return flat if flat.stride(1) == 1 or cols == 1 else flat.contiguous()


@triton.jit
def meet(count_ptr, PARTS: tl.constexpr):
    """Publish what this program stored, then wait until all `PARTS` programs of the row have; returns 0.

    The low 16 bits of the counter count arrivals, the high 16 bits departures (`depart`). One thread announces
    (release) and polls (acquire), then the block's barrier lets the others go on: a poll by every thread would keep
    the counter's line in L2 so busy that the arrivals themselves are held up. Adding the returned zero to an address
    keeps the loads behind the wait; they must bypass L1.
    """
    tl.atomic_add(count_ptr, 1, sem="release", scope="gpu")
    seen = tl.inline_asm_elementwise(
        """{
        .reg .pred missing, other;
        .reg .b32 arrived, thread;
        mov.u32 thread, %tid.x;
        mov.b32 arrived, 0;
        setp.ne.u32 other, thread, 0;
        @other bra all_together;
        wait_for_partners:
        ld.acquire.gpu.global.b32 arrived, [$1];
        and.b32 arrived, arrived, 65535;
        setp.lt.u32 missing, arrived, $2;
        @missing bra wait_for_partners;
        all_together:
        bar.sync 0;
        mov.b32 $0, arrived;
        }""",
        "=r,l,r",
        [count_ptr.to(tl.int64), PARTS],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    return seen >> 16


@triton.jit
def depart(count_ptr, PARTS: tl.constexpr):
    """Say that this program is past its wait; the last one to say so zeroes the counter for the next launch."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred other, last;
        .reg .b32 before, thread;
        mov.u32 thread, %tid.x;
        setp.ne.u32 other, thread, 0;
        @other bra gone;
        atom.global.acq_rel.gpu.add.u32 before, [$1], 65536;
        shr.u32 before, before, 16;
        setp.eq.u32 last, before, $2;
        @last st.relaxed.gpu.global.u32 [$1], 0;
        gone:
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [count_ptr.to(tl.int64), PARTS - 1],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


_BUFFERS: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def exchange_buffers(device: torch.device, stats: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for the partial results (fp32) and zeroed counters (int32).

    The counters are zero again when the kernel ends, so one pair per device and stream is kept. While a graph is being
    captured it gets its own, zeroed inside the graph: it may be replayed on any stream.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.empty(stats, device=device), torch.zeros(rows, dtype=torch.int32, device=device)
    key = (device.index, torch.cuda.current_stream(device).cuda_stream)
    kept = _BUFFERS.get(key)
    if kept is None or kept[0].numel() < stats or kept[1].numel() < rows:
        size_stats = max(stats, kept[0].numel() if kept else 0)
        size_rows = max(rows, kept[1].numel() if kept else 0)
        kept = (
            torch.empty(size_stats, device=device),
            torch.zeros(size_rows, dtype=torch.int32, device=device),
        )
        _BUFFERS[key] = kept
    return kept


def launch_split(
    kernel: Kernel,
    key: tuple[Any, ...],
    tensors: tuple[torch.Tensor, ...],
    scalars: tuple[int | float, ...],
    meta: dict[str, Any],
    rows: int,
    shape: Layout,
) -> None:
    """Launch a kernel whose rows are shared by `shape.parts` programs; `tensors` end with statistics and counters."""
    programs = rows * shape.parts
    if not INTERPRETED and (kernel, shape) not in _NO_ROOM:
        per_sm = shape.persistent or 2
        fused = Launch(
            (programs,),
            scalars,
            {**meta, "PHASE": FUSED},
            shape.warps,
            1,
            shape.parts,
            min(65536 // (shape.warps * 32 * per_sm), 255),
        )
        try:
            kernel((key, FUSED), tensors, lambda: fused)
            return
        except NoRoomError:
            _NO_ROOM.add((kernel, shape))
    for phase in (STATS, APPLY):
        whole = Launch((programs,), scalars, {**meta, "PHASE": phase}, shape.warps)
        kernel((key, phase), tensors, lambda whole=whole: whole)


_NO_ROOM: set[tuple[Kernel, Layout]] = set()


def trace_split(
    kernel: Kernel,
    tensors: tuple[torch.Tensor, ...],
    scalars: tuple[int | float, ...],
    meta: dict[str, Any],
    rows: int,
    shape: Layout,
) -> None:
    for phase in (STATS, APPLY):
        kernel.trace(tensors, Launch((rows * shape.parts,), scalars, {**meta, "PHASE": phase}, shape.warps))
