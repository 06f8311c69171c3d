from __future__ import annotations

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(inner: str = "Torch-Compiled Region: 1/0", *, broken_from: int = 0, side_by_side: bool = False) -> TraceBuilder:
    """Three steps: a graph of 50 us, 100 us of eager work, then the rest in a nested region."""
    b = TraceBuilder()
    for step in range(3):
        with b.step():
            with b.op("Torch-Compiled Region: 0/0", head=0, tail=0):
                with b.op("## Call CompiledFxGraph f0 ##", head=45, tail=0):
                    b.launch("triton_poi_fused_add_0", call=5)
                if step >= broken_from:
                    with b.op("aten::item", head=60, tail=40):
                        pass
                    if not side_by_side:
                        with b.op(inner, head=0, tail=0), b.op("## Call CompiledFxGraph f1 ##", head=45, tail=0):
                            b.launch("triton_poi_fused_mul_0", call=5)
            if side_by_side:
                with b.op(inner), b.op("## Call CompiledFxGraph f1 ##"):
                    b.launch("triton_poi_fused_mul_0", call=5)
    return b


def test_a_region_that_continues_in_another_one() -> None:
    result = found("CMP101", run().build())
    assert title("CMP101", result) == (
        "torch.compile breaks the graph 1 time per step: 100.0 us of host time runs between the pieces, uncompiled."
    )
    # One graph would be entered once: the second one's 50 us go, too, but for its launch.
    assert result.gain_ns == pytest.approx(145_725)
    assert [row["operator"] for row in result.evidence[1].rows] == ["aten::item"]


def test_regions_side_by_side_are_compiled_separately() -> None:
    cleared("CMP101", run(side_by_side=True).build())


def test_a_recompiled_frame_inside_itself_is_no_break() -> None:
    cleared("CMP101", run("Torch-Compiled Region: 0/1").build())


def test_the_first_step_may_break() -> None:
    b = TraceBuilder()
    for step in range(3):
        with b.step(), b.op("Torch-Compiled Region: 0/0"):
            if step == 0:
                with b.op("Torch-Compiled Region: 1/0"):
                    b.launch()
            b.launch()
    cleared("CMP101", b.build())


def test_nothing_compiled() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("CMP101", b.build())
