from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(compiling: set[int], *, steps: int = 4, index: list[int] | None = None, rows: bool = True) -> TraceBuilder:
    b = TraceBuilder()
    for step in range(steps):
        with b.step():
            if step in compiling and rows:
                with b.op("_compile.compile_inner (dynamo_timed)", head=1, tail=499):
                    b.slice(f"dynamo_data: compile_id=0/{step}", Kind.ANNOTATION, b.now, 10)
                    with b.op("backend_compile (dynamo_timed)", head=300, tail=199):
                        pass
            with b.op(f"Torch-Compiled Region: 0/{(index or [0] * steps)[step]}"):
                b.launch("triton_poi_fused_add_0")
    return b


def test_every_step_compiles() -> None:
    result = found("CMP102", run({0, 1, 2, 3}).build())
    assert title("CMP102", result).startswith(
        "torch.compile compiles in 4 of 4 steps (compile ids 0/0, 0/1, 0/2, 0/3): 999.0 us of 1.01 ms"
    )
    assert result.gain_ns == pytest.approx(1_000_000)
    assert [row["phase"] for row in result.evidence[0].rows] == ["_compile.compile_inner", "backend_compile"]


def test_the_threshold_is_half_of_the_steps_fewer_are_a_warm_up_that_was_too_short() -> None:
    assert cleared("CMP102", run({0}).build()) == "1 of 4 steps compile"
    found("CMP102", run({0, 2}).build())


def test_a_rising_index_gives_it_away_without_rows() -> None:
    result = found("CMP102", run(set(), index=[1, 2, 3, 4]).build())
    assert (result.confidence, result.gain_ns) == ("low", 0)
    assert "frame 0: 2, 3, 4" in title("CMP102", result)


def test_a_constant_index_is_one_compilation() -> None:
    cleared("CMP102", run(set(), index=[3, 3, 3, 3]).build())


def test_the_step_without_the_profiler_is_quoted_beside_the_recorded_one() -> None:
    result = found("CMP102", run({0, 1, 2, 3}).build(), unprofiled_us=300)
    assert any(getattr(block, "values", {}).get("step") for block in result.evidence)


def test_nothing_compiles() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::add"):
            b.launch()
    skipped("CMP102", b.build())


def test_one_step_may_be_the_first() -> None:
    skipped("CMP102", run({0}, steps=1).build())
