"""Backward work stands where its forward operator stands."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from lanewise.tree.build import build_tree
from lanewise.tree.model import PHASES, NodeKind, Tree
from lanewise.tree.views import placed
from tests.support.builder import TraceBuilder


def kernels(tree: Tree) -> dict[str, tuple[str, str]]:
    """Kernel -> the operators and modules around it, and its phase."""
    found: dict[str, tuple[str, str]] = {}
    for node in range(len(tree)):
        if tree.kind[node] == NodeKind.KERNEL:
            names, at = [], int(tree.parent[node])
            while at >= 0:
                names.append(tree.label(at).removeprefix("autograd::engine::evaluate_function: "))
                at = int(tree.parent[at])
            found[tree.label(node)] = (" > ".join(reversed(names)), PHASES[int(tree.phase[node])])
    return found


class Engine:
    """Backward rows on the autograd thread."""

    def __init__(self, b: TraceBuilder, thread: str = "200", forward_thread: int = 1) -> None:
        self.b, self.thread, self.forward_thread = b, thread, forward_thread

    def run(self, function: str, sequence: int, kernel: str) -> None:
        """One function of the graph with one kernel."""
        b, back = self.b, self.b.thread
        frames, b._frames = b._frames, []
        b.thread = self.thread
        arguments = {"sequence": sequence, "forward_thread": self.forward_thread}
        with b.op(f"autograd::engine::evaluate_function: {function}", **arguments), b.op(function, **arguments):
            b.launch(kernel)
        b.thread, b._frames = back, frames

    def accumulate(self, kernel: str) -> None:
        """A gradient added to a parameter's."""
        b, back = self.b, self.b.thread
        b.thread = self.thread
        with b.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"), \
                b.op("torch::autograd::AccumulateGrad"):  # fmt: skip
            b.launch(kernel)
        b.thread = back


def test_the_innermost_and_latest_row_with_the_number_owns_it() -> None:
    """Six rows carry the first convolution's number, the copy of the input too: they only peek at the counter."""
    b = TraceBuilder()
    engine = Engine(b)
    with b.step():
        with b.op("aten::to", sequence=5, forward_thread=0), b.op("aten::_to_copy", sequence=5, forward_thread=0):
            b.copy()
        with b.frame("nn.Module: Conv2d_0"), b.op("aten::conv2d", sequence=5, forward_thread=0), \
                b.op("aten::convolution", sequence=5, forward_thread=0):  # fmt: skip
            b.launch("fprop")
        engine.run("ConvolutionBackward0", 5, "dgrad")
    tree = build_tree(b.build())
    assert kernels(placed(tree, "forward")) == {
        "fprop": ("main thread > Conv2d > aten::conv2d > aten::convolution", "forward"),
        "dgrad": ("main thread > Conv2d > aten::conv2d > aten::convolution > ConvolutionBackward0 > "
                  "ConvolutionBackward0", "backward"),
    }  # fmt: skip
    assert kernels(placed(tree, "ran"))["dgrad"] == (
        "autograd threads > ConvolutionBackward0 > ConvolutionBackward0",
        "backward",
    )
    assert (tree.info.backward, tree.info.linked) == (2, 2)


def test_equal_functions_of_different_lines_stay_apart() -> None:
    b = TraceBuilder()
    engine = Engine(b)
    with b.step():
        for number, line in ((1, 10), (2, 20)):
            with b.frame(f"net.py({line}): f"), b.op("aten::mul", sequence=number, forward_thread=0):
                b.launch("mul")
        engine.run("MulBackward0", 2, "late")
        engine.run("MulBackward0", 1, "soon")
    found = kernels(placed(build_tree(b.build()), "forward"))
    assert "net.py(20): f" in found["late"][0]
    assert "net.py(10): f" in found["soon"][0]


def test_a_second_backward_pass_finds_the_same_forward() -> None:
    """`retain_graph=True`: the entry is used twice, so using it must not spend it."""
    b = TraceBuilder()
    engine = Engine(b)
    with b.step():
        with b.op("aten::mul", sequence=1, forward_thread=0):
            b.launch("mul")
        engine.run("MulBackward0", 1, "first")
        engine.run("MulBackward0", 1, "second")
    tree = build_tree(b.build())
    found = kernels(placed(tree, "forward"))
    assert found["first"][0] == found["second"][0] == "main thread > aten::mul > MulBackward0 > MulBackward0"
    assert tree.info.linked == tree.info.backward == 4


def test_a_number_that_comes_again_belongs_to_its_own_step() -> None:
    """The latest forward row before the backward row, not the last of the file."""
    b = TraceBuilder()
    engine = Engine(b)
    for line in (10, 20):
        with b.step():
            with b.frame(f"net.py({line}): f"), b.op("aten::mul", sequence=1, forward_thread=0):
                b.launch("mul")
            engine.run("MulBackward0", 1, f"backward of {line}")
    found = kernels(placed(build_tree(b.build()), "forward"))
    assert all(f"net.py({line}): f" in found[f"backward of {line}"][0] for line in (10, 20))


def two_threads(*, arrows: bool) -> Trace:
    """Two forward threads with the same numbers, then their backward passes."""
    b = TraceBuilder()
    operators: dict[tuple[str, int], int] = {}
    with b.step():
        for thread in ("100", "300"):
            b.thread = thread
            for number in (1, 2):
                with b.frame(f"net.py({thread}): f"), b.op("aten::mul", sequence=number, forward_thread=0) as event:
                    b.launch("mul")
                operators[thread, number] = event
        b.thread = "100"
        # With arrows the profiler's thread numbers are the other way round: only the arrows tell.
        owners = {"100": 2, "300": 1} if arrows else {"100": 1, "300": 2}
        for thread, profiler_number in owners.items():
            for number in (2, 1):
                if arrows:
                    lane = b.lane("host", "100", thread)
                    flow = number + 10 * profiler_number
                    start = b._events[operators[thread, number]]["start"]
                    text = b.text("fwdbwd")
                    b.row("flows", id=flow, category=text, end=0, time=start, lane=lane)
                    b.row("flows", id=flow, category=text, end=1, time=round(b.now * 1000),
                          lane=b.lane("host", "100", "200"))  # fmt: skip
                Engine(b, forward_thread=profiler_number).run("MulBackward0", number, f"backward of {thread}")
    return b.build()


@pytest.mark.parametrize("arrows", [True, False])
def test_each_forward_thread_counts_for_itself(arrows: bool) -> None:
    found = kernels(placed(build_tree(two_threads(arrows=arrows)), "forward"))
    for thread in ("100", "300"):
        assert f"net.py({thread}): f" in found[f"backward of {thread}"][0]


def test_a_gradient_is_accumulated_beside_the_function_that_made_it() -> None:
    b = TraceBuilder()
    engine = Engine(b)
    with b.step():
        with b.frame("nn.Module: Linear_0"), b.op("aten::addmm", sequence=1, forward_thread=0):
            b.launch("gemm")
        with b.frame("nn.Module: Linear_1"), b.op("aten::addmm", sequence=2, forward_thread=0):
            b.launch("gemm")
        engine.run("AddmmBackward0", 2, "grad 1")
        engine.accumulate("add 1")
        engine.run("AddmmBackward0", 1, "grad 0")
        engine.accumulate("add 0")
    tree = build_tree(b.build())
    found = kernels(placed(tree, "forward"))
    assert "Linear_1" in found["add 1"][0]
    assert "Linear_0" in found["add 0"][0]
    assert found["add 0"][1] == "backward"
    assert tree.info.accumulated == 2


def test_an_accumulation_follows_a_function_whose_hooks_hide_its_number() -> None:
    """Under FSDP the engine's row runs a hook first and carries no number; the function inside does."""
    b = TraceBuilder()
    with b.step():
        with b.frame("nn.Module: LayerNorm_0"), b.op("aten::native_layer_norm", sequence=1, forward_thread=0):
            b.launch("norm")
        b.thread = "200"
        with b.op("autograd::engine::evaluate_function: NativeLayerNormBackward0"):
            with b.span("FSDP::pre_backward (0)"), b.op("nccl:_all_gather_base"):
                b.launch("ncclDevKernel_AllGather", stream="17")
            with b.op("NativeLayerNormBackward0", sequence=1, forward_thread=1):
                b.launch("grad")
        b.thread = "100"
        Engine(b).accumulate("add")
    found = kernels(placed(build_tree(b.build()), "forward"))
    assert "LayerNorm" in found["grad"][0]
    assert "LayerNorm" in found["add"][0]
    assert found["ncclDevKernel_AllGather"][0].startswith("autograd threads")


def test_an_accumulation_that_starts_communication_stays_where_it_ran() -> None:
    b = TraceBuilder()
    engine = Engine(b)
    with b.step():
        with b.frame("nn.Module: Linear_0"), b.op("aten::addmm", sequence=1, forward_thread=0):
            b.launch("gemm")
        engine.run("AddmmBackward0", 1, "grad")
        b.thread = "200"
        with b.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"), \
                b.op("torch::autograd::AccumulateGrad"), b.op("c10d::allreduce_"), \
                b.op("nccl:all_reduce"):  # fmt: skip
            b.launch("ncclDevKernel_AllReduce_Sum", stream="17")
    found = kernels(placed(build_tree(b.build()), "forward"))
    path, phase = found["ncclDevKernel_AllReduce_Sum"]
    assert path.startswith("autograd threads > torch::autograd::AccumulateGrad")
    assert phase == "communication"


def test_recomputation_stands_under_the_function_that_asked_for_it() -> None:
    """Checkpointing without re-entry: the first function of the segment runs the forward operators again."""
    b = TraceBuilder()
    engine, again = Engine(b), Engine(b, forward_thread=2)
    with b.step():
        for number in range(1, 5):
            with b.frame(f"nn.Module: Linear_{number}"), b.op("aten::addmm", sequence=number, forward_thread=0):
                b.launch("gemm")
        b.thread = "200"
        with b.op("autograd::engine::evaluate_function: AddmmBackward0", sequence=4, forward_thread=1), \
                b.op("AddmmBackward0", sequence=4, forward_thread=1):  # fmt: skip
            with b.op("aten::addmm", sequence=9, forward_thread=0):
                b.launch("again")
            with b.op("aten::mm"):
                b.launch("grad 4")
        b.thread = "100"
        again.run("AddmmBackward0", 9, "grad of again")
        for number in (3, 2, 1):
            engine.run("AddmmBackward0", number, f"grad {number}")
    tree = build_tree(b.build())
    found = kernels(placed(tree, "forward"))
    assert found["again"][1] == "recompute"
    assert found["grad of again"][1] == found["grad 4"][1] == "backward"
    assert found["grad of again"][0].endswith("AddmmBackward0 > aten::addmm > AddmmBackward0 > AddmmBackward0")
    assert tree.info.linked == tree.info.backward
    assert [kernel for kernel, (_, phase) in found.items() if phase == "recompute"] == ["again"]


def test_a_differentiated_backward_pass_is_not_taken_for_recomputation() -> None:
    """`create_graph=True`: nearly every backward function has numbered operators inside."""
    b = TraceBuilder()
    engine = Engine(b)
    with b.step():
        for number in (1, 2, 3):
            with b.op("aten::mul", sequence=number, forward_thread=0):
                b.launch("mul")
        b.thread = "200"
        for number in (3, 2, 1):
            with b.op("autograd::engine::evaluate_function: MulBackward0", sequence=number, forward_thread=1), \
                    b.op("MulBackward0", sequence=number, forward_thread=1), \
                    b.op("aten::mul", sequence=10 - number, forward_thread=0):  # fmt: skip
                b.launch(f"grad {number}")
        b.thread = "100"
        for number in (9, 8, 7):
            engine.run("MulBackward0", number, f"second {number}")
    tree = build_tree(b.build())
    found = kernels(placed(tree, "forward"))
    assert {phase for kernel, (_, phase) in found.items() if kernel != "mul"} == {"backward"}
    # The second derivative hangs under the operator of the first pass that it differentiates.
    assert found["second 9"][0].count("MulBackward0") >= 3
    assert tree.info.linked == tree.info.backward == 12


def test_work_whose_forward_was_not_recorded_stays_where_it_ran() -> None:
    b = TraceBuilder()
    with b.step():
        Engine(b).run("MulBackward0", 77, "grad")
    tree = build_tree(b.build())
    assert kernels(placed(tree, "forward"))["grad"] == ("autograd threads > MulBackward0 > MulBackward0", "backward")
    assert (tree.info.backward, tree.info.linked) == (2, 0)
