"""What an eager and a compiled run prove together, and tree files as sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.compare.compare import compare_arms
from lanewise.compare.diff import diff, run_of
from lanewise.compare.model import Difference
from lanewise.compare.sides.arm import Arm
from lanewise.tree.build import build_tree
from lanewise.tree.tree_file import save
from tests.compare.programs import PROGRAM, Do, change_all, fuse, record
from tests.support.builder import TraceBuilder

SILU = 9
GATE = "triton_poi_fused_mul_silu_3"


def twins(compiled: tuple[Do, ...], *, host_us: float = 0.0, eager_us: float = 0.0) -> Difference:
    a, b = record(PROGRAM, 1, host_us=eager_us), record(compiled, 2, compiled=True, host_us=host_us)
    return compare_arms([Arm("eager", [run_of(a)]), Arm("compiled", [run_of(b)])]).differences[0]


def codes(difference: Difference) -> list[str]:
    return [statement.code for statement in difference.statements]


def test_compiling_what_cannot_be_fused_is_said() -> None:
    renamed = change_all(PROGRAM, SILU, name="triton_poi_fused_silu_0", operator="triton_poi_fused_silu_0")
    difference = twins(renamed)
    assert codes(difference) == ["CMP105"]
    assert "map one to one" in difference.statements[0].title
    assert "Compiling: the same 9 matrix products; nothing was fused" in difference.verdict


def test_it_is_not_said_where_something_was_fused() -> None:
    pairs = [(SILU + 9 * layer, SILU + 1 + 9 * layer) for layer in range(4)]
    assert "CMP105" not in codes(twins(fuse(PROGRAM, pairs, GATE, 4.0)))


def test_it_is_not_said_where_the_step_became_longer() -> None:
    assert "CMP105" not in codes(twins(PROGRAM, host_us=500.0))


def test_a_region_that_costs_more_than_it_gives_back_is_said_with_the_true_difference() -> None:
    difference = twins(PROGRAM, eager_us=2_000.0, host_us=2_500.0)
    assert codes(difference) == ["CMP103"]
    finding = difference.statements[0]
    assert finding.recoverable_us_per_step == pytest.approx(500, rel=0.1)
    assert finding.confidence == "high"
    assert finding.fix


def test_two_eager_runs_prove_nothing_about_compiling() -> None:
    a, b = record(PROGRAM, 1), record(PROGRAM, 2, host_us=500.0)
    assert compare_arms([Arm("a", [run_of(a)]), Arm("b", [run_of(b)])]).differences[0].statements == []


def nested(gelu_us: float) -> TraceBuilder:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.span("mlp"):
            for name, us in (("aten::mm", 50.0), ("aten::gelu", gelu_us)):
                with b.op(name):
                    b.launch(f"{name}_kernel", duration=us)
    return b


def test_places_are_compared_when_asked_for() -> None:
    difference = diff(nested(10).build(), nested(30).build(), labels=["a", "b"], contexts=True).differences[0]
    (place,) = [c for c in difference.contexts if c.name == "aten::gelu"]
    assert (place.path[-1], place.b_device_ns - place.a_device_ns) == ("mlp", 20_000)
    assert diff(nested(10).build(), nested(30).build(), labels=["a", "b"]).differences[0].contexts == []


def test_tree_files_are_sides(tmp_path: Path) -> None:
    paths = [tmp_path / "a.lwtree", tmp_path / "b.lwtree"]
    for path, us in zip(paths, (10.0, 30.0), strict=True):
        save(build_tree(nested(us).build()), path)
    difference = diff(*paths).differences[0]
    assert [c.name for c in difference.contexts] == ["aten::gelu"]
    assert difference.device == []
    assert any("a is a tree" in warning for warning in difference.warnings)
    assert difference.step.verdict == "not enough samples"
