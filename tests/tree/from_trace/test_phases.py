"""Phases by name, by number and by position."""

from __future__ import annotations

from lanewise.tree.build import build_tree
from lanewise.tree.model import PHASES, NodeKind, Tree
from tests.support.builder import TraceBuilder
from tests.tree.samples import case_tree, small_tree


def phase_of(tree: Tree) -> dict[str, set[str]]:
    """Kernel or copy -> its phases."""
    found: dict[str, set[str]] = {}
    for node in range(len(tree)):
        if tree.leaf[node]:
            found.setdefault(tree.label(node), set()).add(PHASES[int(tree.phase[node])])
    return found


def test_the_phases_of_a_training_step() -> None:
    assert phase_of(small_tree()) == {
        "Memcpy HtoD (Pageable -> Device)": {"other"},
        "gemm": {"forward"},
        "gemm backward": {"backward"},
        "update": {"optimizer"},
    }


def test_an_operator_between_two_of_the_forward_pass_is_part_of_it() -> None:
    """No stacks, no modules: the rotary embedding needs no gradient, yet it stands between operators that do."""
    b = TraceBuilder()
    with b.step():
        with b.op("aten::randn"):
            b.launch("before")
        with b.op("aten::embedding", sequence=1, forward_thread=0):
            b.launch("first")
        with b.op("aten::arange"):
            b.launch("between")
        with b.op("aten::mm", sequence=2, forward_thread=0):
            b.launch("last")
        with b.op("aten::argmax"):
            b.launch("after")
        b.thread = "200"
        for number in (2, 1):
            with b.op("XBackward0", sequence=number, forward_thread=1):
                b.launch("grad")
        b.thread = "100"
    found = phase_of(build_tree(b.build()))
    assert found == {"before": {"other"}, "first": {"forward"}, "between": {"forward"}, "last": {"forward"},
                     "after": {"other"}, "grad": {"backward"}}  # fmt: skip


def test_a_backward_pass_ends_the_forward_pass() -> None:
    """Two micro-batches: what stands between them, after the first backward pass, is not forward work."""
    b = TraceBuilder()
    with b.step():
        for number in (1, 2):
            with b.op("aten::mm", sequence=number, forward_thread=0):
                b.launch("gemm")
            b.thread = "200"
            with b.op("XBackward0", sequence=number, forward_thread=1):
                b.launch("grad")
            b.thread = "100"
            with b.op("aten::add"):
                b.launch("log the loss")
    assert phase_of(build_tree(b.build()))["log the loss"] == {"other"}


def test_without_gradients_and_modules_what_computes_is_forward() -> None:
    b = TraceBuilder()
    with b.step():
        with b.op("aten::to"):
            b.copy()
        with b.op("aten::mm"):
            b.launch("gemm")
    assert phase_of(build_tree(b.build())) == {"Memcpy HtoD (Pinned -> Device)": {"other"}, "gemm": {"forward"}}


def test_data_loading_and_communication_by_name() -> None:
    b = TraceBuilder()
    with b.step():
        with b.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), b.op("aten::stack"):
            b.launch("collate")
        with b.op("c10d::allreduce_"), b.op("record_param_comms"), b.op("nccl:all_reduce"):
            b.launch("ncclDevKernel_AllReduce", stream="17")
        with b.op("aten::mm"):
            b.launch("ncclDevKernel_launched_elsewhere")
    assert phase_of(build_tree(b.build())) == {
        "collate": {"data loading"},
        "ncclDevKernel_AllReduce": {"communication"},
        "ncclDevKernel_launched_elsewhere": {"communication"},
    }


def test_the_backward_call_waits_in_the_backward_phase() -> None:
    b = TraceBuilder()
    with b.step(), b.frame("train.py(1): step"), b.frame("torch/_tensor.py(576): backward"), b.op("aten::ones_like"):
        b.launch("fill")
    tree = build_tree(b.build())
    assert phase_of(tree) == {"fill": {"backward"}}
    frame = next(n for n in range(len(tree)) if tree.kind[n] == NodeKind.FRAME and "train.py" in tree.label(n))
    assert PHASES[int(tree.phase[frame])] == "other"


def test_real_recomputation_is_recognised() -> None:
    """Recorded with torch 2.11: both kinds of checkpointing recompute two of three blocks; the rest does not."""
    for case in ("checkpoint", "checkpoint_reentrant"):
        tree = case_tree(case)
        recompute = [n for n in range(len(tree)) if PHASES[int(tree.phase[n])] == "recompute" and tree.leaf[n]]
        assert 0.08 < sum(int(tree.metrics["device"][n]) for n in recompute) / tree.total("device") < 0.18, case
    for case in ("plain", "retain_graph", "double_backward", "accumulate", "compile"):
        tree = case_tree(case)
        assert "recompute" not in {PHASES[int(phase)] for phase in tree.phase}, case
