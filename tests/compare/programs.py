"""A synthetic training-like program as a list of ops, edits of it, and traces of both with noise.

The program is data, so that an edit is one line and what a comparison must say about it stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lanewise.compare.compare import compare_arms
from lanewise.compare.diff import run_of
from lanewise.compare.model import Comparison
from lanewise.compare.sides.arm import Arm
from lanewise.trace.model import Trace
from tests.support.builder import TraceBuilder

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::{}, std::array<char*, 3ul> >(int, at::native::{})"
)


def pointwise(functor: str) -> str:
    """The name of an eager pointwise kernel."""
    return ELEMENTWISE.format(functor, functor)


@dataclass(frozen=True)
class Do:
    """One thing that a step does: an operator with its device work."""

    operator: str
    name: str
    us: float
    kind: str = "kernel"
    grid: tuple[int, int, int] = (264, 1, 1)
    size: int = 1 << 20
    source: str | None = None
    host_us: float = 6.0
    dims: Any = None


GEMM = "nvjet_sm90_tst_{}_64x8_1x2_h_bz_{}"
LAYER: tuple[Do, ...] = (
    Do("aten::pow", pointwise("pow_tensor_scalar_kernel_impl<float>"), 3.1),
    Do(
        "aten::mean",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >()",
        4.2,
    ),
    Do("aten::rsqrt", pointwise("rsqrt_kernel_cuda<float>"), 2.0, grid=(8, 1, 1)),
    Do("aten::mm", GEMM.format("128x64", "TNT"), 21.0, grid=(132, 1, 1)),
    Do("aten::_scaled_dot_product_flash_attention", "void pytorch_flash::flash_fwd_kernel<64, 128>(Params)", 30.0),
    Do("aten::mm", GEMM.format("64x64", "NNT"), 14.0, grid=(64, 2, 1)),
    Do("aten::add", pointwise("CUDAFunctor_add<c10::BFloat16>"), 2.7),
    Do("aten::silu", pointwise("silu_kernel<c10::BFloat16>"), 3.6),
    Do("aten::mul", pointwise("BinaryFunctor<c10::BFloat16, MulFunctor<float> >"), 3.9),
)
HEAD: tuple[Do, ...] = (
    Do("aten::copy_", "", 12.0, kind="HtoD"),
    Do("aten::embedding", "void at::native::vectorized_gather_kernel<16, long>(char*)", 2.5),
)
TAIL: tuple[Do, ...] = (
    Do("aten::mm", GEMM.format("256x128", "NTT"), 40.0, grid=(2, 66, 1)),
    Do("aten::_log_softmax", "void at::native::cunn_SoftMaxForward<4, float, float>()", 6.0),
    Do("aten::zero_", "", 1.0, kind="set"),
)
PROGRAM: tuple[Do, ...] = HEAD + LAYER * 4 + TAIL


def record(
    program: Sequence[Do],
    seed: int,
    *,
    steps: int = 14,
    noise: float = 0.01,
    slower: float = 1.0,
    graph: tuple[int, int] | None = None,
    host_us: float = 0.0,
    compiled: bool = False,
) -> Trace:
    """A trace of the program.

    Args:
        seed: of the noise: another seed is another recording.
        noise: relative standard deviation of every time.
        slower: factor on all device times (another clock).
        graph: positions [from, to) that one graph launch replays.
        host_us: host time at the beginning of each step.
        compiled: whether a compiled region surrounds the step.
    """
    draw = np.random.default_rng(seed)
    b = TraceBuilder()

    def jitter(us: float) -> float:
        return float(us * max(0.5, draw.normal(1.0, noise)))

    for _ in range(steps):
        with b.step():
            b.wait(jitter(host_us)) if host_us else None
            with b.op("Torch-Compiled Region: 0/0") if compiled else b.span("body"):
                _run(b, program, jitter, slower, graph)
        b.wait(jitter(20.0))
    return b.build()


def _run(
    b: TraceBuilder,
    program: Sequence[Do],
    jitter: Callable[[float], float],
    slower: float,
    graph: tuple[int, int] | None,
) -> None:
    for place, do in enumerate(program):
        if graph is not None and graph[0] <= place < graph[1]:
            if place == graph[0]:
                nodes = program[graph[0] : graph[1]]
                first = b.launch([node.name for node in nodes], duration=1.0, api="cudaGraphLaunch")
                _spread(b, first[1:], nodes, jitter, slower)
            continue
        with b.op(do.operator, head=jitter(do.host_us), tail=1.0, dims=do.dims):
            us = jitter(do.us * slower)
            if do.kind == "kernel":
                b.launch(do.name, duration=us, grid=do.grid)
            elif do.kind == "set":
                b.memset(size=do.size, duration=us)
            else:
                b.copy(do.kind, size=do.size, duration=us, source=do.source)


def _spread(
    b: TraceBuilder, events: Sequence[int], nodes: Sequence[Do], jitter: Callable[[float], float], slower: float
) -> None:
    """Give the nodes of a graph launch the times and grids of their own."""
    at = b._events[events[0]]["start"]
    for event, node in zip(events, nodes, strict=True):
        length = round(jitter(node.us * slower) * 1000)
        b._events[event].update(start=at, duration=length)
        row = next(row for row in reversed(b._rows["kernel_args"]) if row["event"] == event)
        row.update(grid_x=node.grid[0], grid_y=node.grid[1], grid_z=node.grid[2])
        at += length + 300
    b._free["0/7"] = at / 1000


def compare_traces(a: Trace, b: Trace, *, anyway: bool = False) -> Comparison:
    """The comparison of two traces labelled A and B."""
    return compare_arms([Arm("A", [run_of(a)]), Arm("B", [run_of(b)])], anyway=anyway)


def insert(program: Sequence[Do], place: int, *what: Do) -> tuple[Do, ...]:
    """The program with something more at a place."""
    return (*program[:place], *what, *program[place:])


def delete(program: Sequence[Do], *places: int) -> tuple[Do, ...]:
    """The program without what is at some places."""
    return tuple(do for place, do in enumerate(program) if place not in places)


def change(program: Sequence[Do], place: int, **fields: Any) -> tuple[Do, ...]:
    """The program with one op changed."""
    return (*program[:place], replace(program[place], **fields), *program[place + 1 :])


def change_all(program: Sequence[Do], like: int, **fields: Any) -> tuple[Do, ...]:
    """The program with every op that equals the one at a place changed."""
    return tuple(replace(do, **fields) if do == program[like] else do for do in program)


def fuse(program: Sequence[Do], chains: Sequence[Sequence[int]], name: str, us: float) -> tuple[Do, ...]:
    """The program with each chain of places replaced, where it ends, by one generated kernel."""
    ends = {chain[-1] for chain in chains}
    inside = {place for chain in chains for place in chain}
    fused = Do(name, name, us, grid=(512, 1, 1))
    return tuple(
        fused if place in ends else do for place, do in enumerate(program) if place in ends or place not in inside
    )
