"""Programs of one thread block cluster exchange two numbers through each other's shared memory (Hopper and later).

Triton has no word for this when each program is to stay a program of its own: the launch sets the cluster's size, and
the instructions are written here. `begin` and `ready` make sure that all programs of the cluster run before the first
of them writes to another; `exchange` writes a pair of numbers into every partner's slots and waits at the cluster's
barrier (release on arrival, acquire on leaving); `received` reads the partners' numbers from the program's own shared
memory. Two sets of slots are used in turn (`turn` 0, 1, 0, ...): whoever writes a set again has met the others at the
barrier of the set between. Nothing touches another program's memory after its last barrier, so programs may end alone.

PTX ISA: `barrier.cluster`, `mapa`, `st.shared::cluster`.
"""

# Parameters of kernels have the types that Triton gives them, and branches are decided when it compiles.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["MOST_PARTS", "again", "begin", "exchange", "ready", "received"]

MOST_PARTS = 16
"""Programs of a cluster: 8 on any card that has clusters, 16 on Hopper's large ones."""


@triton.jit
def begin():
    """Announce that this program runs."""
    tl.inline_asm_elementwise(
        "barrier.cluster.arrive.relaxed.aligned; mov.b32 $0, 0;",
        "=r,r",
        [tl.program_id(0)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def ready():
    """Wait until all programs of the cluster run."""
    tl.inline_asm_elementwise(
        "barrier.cluster.wait.aligned; mov.b32 $0, 0;",
        "=r,r",
        [tl.program_id(0)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def exchange(a, b, turn, PARTS: tl.constexpr):
    """Give (a, b) to every program of the cluster, wait for theirs; returns where they are, for `received`."""
    return tl.inline_asm_elementwise(
        """{
        .reg .pred mine;
        .reg .b32 thread, rank, there;
        .shared .align 16 .b8 lanewise_slots[256];
        mov.u32 thread, %tid.x;
        mov.u32 rank, %cluster_ctarank;
        mov.u32 there, lanewise_slots;
        mad.lo.u32 $0, $3, 128, there;
        mad.lo.u32 there, rank, 8, $0;
        setp.lt.u32 mine, thread, $4;
        @mine mapa.shared::cluster.u32 there, there, thread;
        @mine st.shared::cluster.v2.f32 [there], {$1, $2};
        barrier.cluster.arrive.release.aligned;
        barrier.cluster.wait.acquire.aligned;
        }""",
        "=&r,f,f,r,r",
        [a, b, turn, PARTS],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def received(where, parts, SECOND: tl.constexpr):
    """The first (or second) number of the programs `parts` (below 16), from where `exchange` says."""
    return tl.inline_asm_elementwise(
        "ld.shared.f32 $0, [$1];",
        "=f,r",
        [where + parts * 8 + SECOND * 4],
        dtype=tl.float32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def again(raw):
    """`raw` itself, as far as the compiler can tell another value: its conversion to fp32 is done again and not kept.

    A part of a row then waits for a reduction in half precision, in half the registers. (It is combined with the
    program's number along the third axis of the grid, which has one.)
    """
    zero = tl.program_id(2)
    if raw.dtype.primitive_bitwidth == 16:
        pack: tl.constexpr = 2
        kept = tl.inline_asm_elementwise(
            "xor.b32 $0, $1, $2;", "=r,r,r", [raw, zero.to(tl.int16)], dtype=raw.dtype, is_pure=False, pack=pack
        )
    else:
        kept = raw
    return kept
