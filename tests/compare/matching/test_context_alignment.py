"""Trees aligned: what was inserted, removed, renamed, and where the cost went."""

from __future__ import annotations

from collections.abc import Sequence

from lanewise.compare.matching.context_alignment import compare_contexts
from lanewise.compare.model import ContextChange
from lanewise.tree.build import build_tree
from lanewise.tree.model import Tree
from tests.support.builder import TraceBuilder

# An operator with its kernel's time in us, or a place with what is inside of it.
Place = tuple[str, "float | Sequence[Place]"]


def tree_of(*places: Place, steps: int = 2) -> Tree:
    b = TraceBuilder()
    for _ in range(steps):
        with b.step():
            for place in places:
                _add(b, place)
    return build_tree(b.build())


def _add(b: TraceBuilder, place: Place) -> None:
    name, inside = place
    if isinstance(inside, int | float):
        with b.op(name):
            b.launch(f"{name}_kernel", duration=float(inside))
        return
    with b.span(name):
        for child in inside:
            _add(b, child)


ATTENTION: Place = ("attention", [("aten::mm", 30), ("aten::softmax", 10)])
MLP: Place = ("mlp", [("aten::mm", 50), ("aten::gelu", 12)])


def changes(a: Tree, b: Tree) -> dict[str, ContextChange]:
    return {change.name: change for change in compare_contexts(a, b, a_steps=2, b_steps=2)}


def test_equal_trees_have_no_rows() -> None:
    assert compare_contexts(tree_of(ATTENTION, MLP), tree_of(ATTENTION, MLP)) == []


def test_the_place_that_became_dearer_is_named_with_its_path() -> None:
    slower: Place = ("mlp", [("aten::mm", 50), ("aten::gelu", 40)])
    found = changes(tree_of(ATTENTION, MLP), tree_of(ATTENTION, slower))
    assert set(found) == {"aten::gelu"}
    assert found["aten::gelu"].status == "same"
    assert found["aten::gelu"].path[-1] == "mlp"
    assert found["aten::gelu"].b_device_ns - found["aten::gelu"].a_device_ns == 28_000


def test_two_places_inside_make_the_outer_one_worth_a_row() -> None:
    slower: Place = ("mlp", [("aten::mm", 80), ("aten::gelu", 42)])
    found = changes(tree_of(ATTENTION, MLP), tree_of(ATTENTION, slower))
    assert list(found) == ["mlp", "aten::mm", "aten::gelu"]


def test_insertion_and_deletion() -> None:
    found = changes(tree_of(ATTENTION, MLP), tree_of(ATTENTION, MLP, ("norm", [("aten::rms_norm", 9)])))
    assert found["norm"].status == "new"
    assert found["norm"].b_device_ns == 9_000
    found = changes(tree_of(ATTENTION, MLP), tree_of(ATTENTION))
    assert found["mlp"].status == "gone"
    assert found["mlp"].a_device_ns == 62_000


def test_a_rename_is_no_insertion() -> None:
    renamed: Place = ("feed_forward", [("aten::mm", 50), ("aten::gelu", 12)])
    found = changes(tree_of(ATTENTION, MLP), tree_of(ATTENTION, renamed))
    assert set(found) == {"feed_forward"}
    assert (found["feed_forward"].status, found["feed_forward"].was) == ("renamed", "mlp")


def test_something_else_under_another_name_is_no_rename() -> None:
    other: Place = ("router", [("aten::topk", 50), ("aten::scatter", 12)])
    found = changes(tree_of(ATTENTION, MLP), tree_of(ATTENTION, other))
    assert {(change.name, change.status) for change in found.values()} == {("router", "new"), ("mlp", "gone")}


def test_a_wrapper_put_around_is_seen_through() -> None:
    wrapped: Place = ("Torch-Compiled Region: 0/0", [ATTENTION, ("mlp", [("aten::mm", 50), ("aten::gelu", 30)])])
    found = changes(tree_of(ATTENTION, MLP), tree_of(wrapped))
    assert found["Torch-Compiled Region: 0/0"].status == "wrapped"
    assert found["aten::gelu"].status == "same"
    assert found["aten::gelu"].b_device_ns - found["aten::gelu"].a_device_ns == 18_000
    assert "aten::mm" not in found


def test_a_wrapper_taken_away_is_seen_through() -> None:
    found = changes(tree_of(("wrapper", [ATTENTION, MLP])), tree_of(ATTENTION, MLP))
    assert found["wrapper"].status == "unwrapped"
    assert len(found) == 1


def test_costs_are_per_step() -> None:
    more: Place = ("mlp", [("aten::mm", 50), ("aten::gelu", 22)])
    three = compare_contexts(tree_of(MLP, steps=3), tree_of(more, steps=5), a_steps=3, b_steps=5)
    assert [change.name for change in three] == ["aten::gelu"]
    assert three[0].b_device_ns - three[0].a_device_ns == 10_000


def test_deep_trees_do_not_exhaust_the_stack() -> None:
    deep: Place = ("aten::mm", 5)
    deeper: Place = ("aten::mm", 900)
    for level in range(1_500):
        deep, deeper = (f"frame{level}", [deep]), (f"frame{level}", [deeper])
    b = TraceBuilder()
    trees: list[Tree] = []
    for place in (deep, deeper):
        b = TraceBuilder()
        with b.step():
            names: list[str] = []
            here: Place = place
            while isinstance(here[1], list):
                names.append(here[0])
                here = here[1][0]
            spans = [b.span(name) for name in names]
            for span in spans:
                span.__enter__()
            _add(b, here)
            for span in reversed(spans):
                span.__exit__(None, None, None)
        trees.append(build_tree(b.build()))
    assert [change.name for change in compare_contexts(*trees)] == ["aten::mm"]
