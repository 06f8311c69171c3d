"""Trees added up and taken from each other."""

from __future__ import annotations

import pytest

from lanewise.errors import UsageError
from lanewise.tree import views
from lanewise.tree.algebra import align, merge, per_step, subtract
from lanewise.tree.build import build_tree
from lanewise.tree.model import Tree
from tests.support.builder import TraceBuilder
from tests.tree.samples import corpus_tree, small_tree


def loop(steps: int, *, copy: bool, duration: int = 5) -> Tree:
    """A loop with a kernel per step, and a copy if asked for."""
    b = TraceBuilder()
    for _ in range(steps):
        with b.step(), b.frame("train.py(1): step"):
            with b.op("aten::mm"):
                b.launch("gemm", duration=duration)
            if copy:
                with b.op("aten::to"):
                    b.copy("HtoD", duration=30)
    return build_tree(b.build())


def changes(tree: Tree) -> dict[str, int]:
    """Leaf -> change of device time."""
    return {tree.label(n): int(tree.metrics["device"][n]) for n in range(len(tree)) if tree.leaf[n]}


def test_ranks_add_up_and_runs_of_one_program_share_their_contexts() -> None:
    both = merge([loop(2, copy=True), loop(2, copy=False)])
    assert changes(both) == {"gemm": 20_000, "Memcpy HtoD (Pinned -> Device)": 60_000}
    assert (both.info.runs, both.info.steps, both.info.device_total) == (2, (2, 3), 80_000)
    with pytest.raises(UsageError, match="nothing to merge"):
        merge([])


def test_the_difference_of_a_fix_is_what_it_saved() -> None:
    before, after = loop(4, copy=True), loop(2, copy=False, duration=6)
    change = subtract(per_step(after), per_step(before))
    assert changes(change) == {"gemm": 1000, "Memcpy HtoD (Pinned -> Device)": -30_000}
    assert change.total("device") == -29_000 == change.info.device_total
    assert views.top_down(change).total("device") == -29_000


def test_trees_with_different_placements_do_not_mix() -> None:
    with pytest.raises(UsageError, match="place backward work differently"):
        merge([small_tree(), views.placed(small_tree(), "forward")])
    with pytest.raises(UsageError, match="where it ran is not in it"):
        views.placed(views.placed(small_tree(), "forward"), "ran")


def test_aligned_trees_keep_their_own_numbers() -> None:
    tree, (first, second) = align([loop(1, copy=True), loop(3, copy=False)])
    at = next(n for n in range(len(tree)) if tree.label(n) == "gemm")
    assert (first["device"][at], second["device"][at]) == (5000, 15_000)


def test_the_fix_of_a_real_program() -> None:
    """Not moving the model: the copies of the weights go, the kernels stay."""
    moved, fixed = corpus_tree("04_resnet50_model_to_device_each_step"), corpus_tree("04_resnet50_infer")
    change = subtract(per_step(fixed), per_step(moved))
    assert change.total("copy") == pytest.approx(-28.3e6, rel=0.02)
    assert abs(change.total("kernel")) < 0.1e6
