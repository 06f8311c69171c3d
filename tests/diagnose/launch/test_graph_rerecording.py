from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(capturing: set[int], *, steps: int = 4, tree: bool = False) -> TraceBuilder:
    b = TraceBuilder()
    for step in range(steps):
        with b.step(), b.op("region"):
            if step in capturing and tree:
                with b.span("CUDAGraphNode.record", Kind.OPERATOR, head=200, tail=100):
                    pass
            elif step in capturing:
                b.call("cudaStreamBeginCapture", duration=10)
                b.wait(50)
                b.call("cudaStreamEndCapture", duration=10)
                b.call("cudaGraphInstantiateWithFlags", duration=280)
            b.launch(["a", "b"])
    return b


@pytest.mark.parametrize("tree", [False, True])
def test_capturing_in_every_step(tree: bool) -> None:
    result = found("LAU108", run({0, 1, 2, 3}, tree=tree).build())
    assert title("LAU108", result).startswith("CUDA graphs are captured again in 4 of 4 steps: 300.0 us per step")
    assert result.gain_ns == pytest.approx(300_000, rel=0.01)


def test_the_threshold_is_half_of_the_steps_fewer_are_warm_up() -> None:
    assert "1 of 4 steps capture" in cleared("LAU108", run({0}).build())
    found("LAU108", run({0, 2}).build())


def test_replays_only() -> None:
    skipped("LAU108", run(set()).build())


def test_a_single_step_may_be_warm_up() -> None:
    skipped("LAU108", run({0}, steps=1).build())
