from __future__ import annotations

from typing import Any

import pytest

from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import H100, TraceBuilder


def run(mode: str | None, *, graph: bool = False, kernel: float = 2.0, by_recorder: bool = False) -> TraceBuilder:
    metadata: dict[str, Any] = {"deviceProperties": [H100]}
    if mode and by_recorder:
        metadata["lanewise"] = {"schema": 1, "environment": {"torch": {"compile_mode": mode}}}
    elif mode:
        metadata["compile_mode"] = mode
    b = TraceBuilder(metadata=metadata)
    for _ in range(4):
        with b.step(), b.op("Torch-Compiled Region: 0/0"), b.op("## Call CompiledFxGraph f0 ##"):
            for _ in range(5):
                b.wait(20)
                b.launch(["a", "b"] if graph else "triton_poi_fused_add_0", duration=kernel)
    return b


@pytest.mark.parametrize("by_recorder", [False, True])
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_graphs_were_asked_for(mode: str, by_recorder: bool) -> None:
    result = found("LAU109", run(mode, by_recorder=by_recorder).build())
    assert f"compiled with mode {mode}" in title("LAU109", result)
    assert result.gain_ns > 0


def test_a_trace_does_not_hold_the_mode() -> None:
    assert "compile_mode" in needed("LAU109", run(None).build())


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_other_modes_use_no_graphs(mode: str) -> None:
    assert mode in cleared("LAU109", run(mode).build())


def test_graphs_are_used() -> None:
    assert "launched" in cleared("LAU109", run("reduce-overhead", graph=True).build())


def test_a_busy_device_needs_no_graph() -> None:
    skipped("LAU109", run("reduce-overhead", kernel=90).build())


def test_nothing_compiled_runs() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        b.launch()
    skipped("LAU109", b.build())
