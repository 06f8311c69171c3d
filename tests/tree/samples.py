"""Trees that several tests look at."""

from __future__ import annotations

from functools import cache

from lanewise.trace.reader import read
from lanewise.tree.build import build_tree
from lanewise.tree.model import Tree
from tests.support.builder import TraceBuilder
from tests.support.corpus import REPOSITORY, trace_path

CASES = REPOSITORY / "tests" / "data" / "tree"


@cache
def corpus_tree(name: str) -> Tree:
    """Tree of a trace of the H100 corpus; skips where it is absent."""
    return build_tree(read(trace_path(name), cache=False))


@cache
def case_tree(name: str) -> Tree:
    """Tree of one of the hard cases."""
    return build_tree(read(CASES / f"{name}.json.gz", cache=False))


def small_trace_builder() -> TraceBuilder:
    """Two steps of a small training loop: a copy, a network of two layers, a backward pass, an optimizer."""
    b = TraceBuilder()
    for step in range(2):
        with b.step(), b.frame("train.py(10): step"):
            with b.frame("<built-in method to of Tensor object at 0x7f01>"), b.op("aten::to"):
                b.copy("HtoD", source="pageable", size=4096, duration=8)
            with b.frame("nn.Module: Net_0"), b.frame("torch/nn/modules/module.py(1783): _call_impl"), \
                    b.frame("net.py(20): forward"):  # fmt: skip
                for layer in (0, 1):
                    with b.frame(f"nn.Module: Linear_{layer}"), b.frame("torch/nn/modules/linear.py(130): forward"), \
                            b.op("aten::linear"), \
                            b.op("aten::addmm", sequence=10 * step + layer, forward_thread=0):  # fmt: skip
                        b.launch("gemm", duration=10 + layer)
            b.thread = "200"
            frames, b._frames = b._frames, []
            for layer in (1, 0):
                numbers = {"sequence": 10 * step + layer, "forward_thread": 1}
                with b.op("autograd::engine::evaluate_function: AddmmBackward0", **numbers), \
                        b.op("AddmmBackward0", **numbers), b.op("aten::mm"):  # fmt: skip
                    b.launch("gemm backward", duration=20 + layer, stream="9")
            b.thread, b._frames = "100", frames
            with b.span("Optimizer.step#SGD.step"), b.op("aten::_foreach_add_"):
                b.launch("update", duration=3)
    return b


@cache
def small_tree() -> Tree:
    """The tree of that loop."""
    return build_tree(small_trace_builder().build())
