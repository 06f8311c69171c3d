"""Random programs for property tests: what a trace may hold, in the shapes that a tree has to survive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from hypothesis import strategies as st

from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from tests.support.builder import TraceBuilder

Action = tuple[Any, ...]

_FRAMES = (
    "train.py(10): main", "train.py(20): step", "lib/model.py(5): forward", "torch/nn/modules/module.py(1255): to",
    "torch/utils/_contextlib.py(116): decorate_context", "<built-in method mm of Tensor object at 0x7f01>",
)  # fmt: skip
_MODULES = ("nn.Module: Linear_0", "nn.Module: Linear_1", "nn.Module: Sequential_0", "nn.Module: Net_0")
_OPERATORS = ("aten::mm", "aten::to", "aten::add", "nccl:all_reduce", "CheckpointFunction")
_KERNELS = ("gemm", "add", "ncclDevKernel_AllReduce", "reduce")
_ANNOTATIONS = ("Optimizer.step#SGD.step", "forward", "enumerate(DataLoader)#Iter.__next__", "mine")

_leaf = st.one_of(
    st.tuples(st.just("launch"), st.sampled_from(_KERNELS), st.integers(1, 50), st.sampled_from(("7", "13"))),
    st.tuples(st.just("graph"), st.lists(st.sampled_from(_KERNELS), min_size=2, max_size=4)),
    st.tuples(st.just("copy"), st.sampled_from(("HtoD", "DtoH", "DtoD")), st.integers(1, 40)),
    st.tuples(st.just("orphan"), st.sampled_from(_KERNELS), st.integers(1, 9)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.just("allocate"), st.integers(1, 1 << 20)),
)


def _around(inner: st.SearchStrategy[Action]) -> st.SearchStrategy[Action]:
    body = st.lists(inner, max_size=4)
    return st.one_of(
        st.tuples(st.just("frame"), st.sampled_from(_FRAMES + _MODULES), body),
        st.tuples(st.just("operator"), st.sampled_from(_OPERATORS), st.booleans(), body),
        st.tuples(st.just("annotation"), st.sampled_from(_ANNOTATIONS), body),
    )


actions = st.lists(st.recursive(_leaf, _around, max_leaves=12), min_size=1, max_size=5)
programs = st.lists(actions, min_size=1, max_size=3)
"""A program: the actions of each step."""


def play(program: Sequence[Sequence[Action]], *, marked: bool = True) -> Trace:
    """The trace of a program. Operators with gradients get backward work on a second thread, in reverse order."""
    b = TraceBuilder()
    b.kernel("early", 0.0, 3.0)
    sequence = 0
    for step in program:
        tape: list[tuple[int, str]] = []

        def differentiate(name: str, tape: list[tuple[int, str]] = tape) -> int:
            nonlocal sequence
            sequence += 1
            tape.append((sequence, name))
            return sequence

        with b.step() if marked else nullcontext():
            for action in step:
                _do(b, action, differentiate)
            b.thread = "200"
            frames, b._frames = b._frames, []
            for number, name in reversed(tape):
                title = f"{name.rpartition(':')[2].title()}Backward0"
                with b.op(f"autograd::engine::evaluate_function: {title}", sequence=number, forward_thread=1), \
                        b.op(title, sequence=number, forward_thread=1):  # fmt: skip
                    b.launch(f"{name}_backward", duration=float(1 + number % 7))
                with b.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                    b.launch("accumulate", duration=2.0)
            b.thread, b._frames = "100", frames
    return b.build()


def _do(b: TraceBuilder, action: Action, differentiate: Callable[[str], int]) -> None:
    match action:
        case ("launch", kernel, duration, stream):
            b.launch(kernel, duration=float(duration), stream=stream)
        case ("graph", kernels):
            b.launch(kernels)
        case ("copy", direction, duration):
            b.copy(direction, duration=float(duration))
        case ("orphan", kernel, duration):
            b.kernel(kernel, b.now, float(duration))
        case ("sync",):
            b.synchronize()
        case ("wait", us):
            b.wait(us)
        case ("allocate", size):
            b.row("memory", time=round(b.now * 1000), lane=b.lane("host", "100", b.thread), bytes=size, address=1,
                  allocated=size, reserved=size, device_type=1, device_id=0)  # fmt: skip
            b.wait(0.5)
        case ("frame", name, body):
            with b.frame(name):
                for inner in body:
                    _do(b, inner, differentiate)
        case ("operator", name, gradient, body):
            numbers = {"sequence": differentiate(name), "forward_thread": 0} if gradient else {}
            with b.op(name, **numbers):
                for inner in body:
                    _do(b, inner, differentiate)
        case ("annotation", name, body):
            with b.span(name, Kind.ANNOTATION):
                for inner in body:
                    _do(b, inner, differentiate)
        case _:
            raise AssertionError(action)
