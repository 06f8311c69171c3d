from __future__ import annotations

import pytest

from lanewise.report.model import TableBlock
from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, needed, skipped, title
from tests.support.builder import TraceBuilder


def run(
    launches: int,
    *,
    parameters: int = 4,
    frames: bool = False,
    operator: str = "aten::mul_",
    kernel: str = "vectorized_elementwise_kernel<4>",
    marked: bool = True,
) -> TraceBuilder:
    """Three steps with a backward pass over some parameters and an optimizer step of 10 us per launch."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(parameters):
                with b.op("torch::autograd::AccumulateGrad"):
                    pass
            if frames:
                with b.frame("torch/optim/adam.py(346): _single_tensor_adam"):
                    pass
            with b.span("Optimizer.step#Adam.step" if marked else "update", Kind.ANNOTATION, head=0, tail=0):
                for _ in range(launches):
                    with b.op(operator, head=3, tail=2):
                        b.launch(kernel, duration=1, call=5)
    return b


def test_three_launches_for_every_parameter() -> None:
    result = found("OPT101", run(12).build())
    assert title("OPT101", result) == (
        "The optimizer walks its parameters one by one: 12 launches and 120.0 us of host time per step."
    )
    assert result.gain_ns == pytest.approx(70_000, rel=0.01)
    assert result.confidence == "medium"


def test_the_thresholds() -> None:
    cleared("OPT101", run(11).build())
    cleared("OPT101", run(9, parameters=1).build())
    found("OPT101", run(10, parameters=3).build())


def test_the_frames_of_the_loop_are_proof() -> None:
    assert found("OPT101", run(11, frames=True).build()).confidence == "high"


def test_multi_tensor_and_fused_implementations_are_fine() -> None:
    cleared("OPT101", run(12, operator="aten::_foreach_mul_").build())
    cleared("OPT101", run(12, operator="aten::_fused_adam_").build())
    cleared("OPT101", run(12, kernel="multi_tensor_apply_kernel<Axpby>").build())


def test_without_parameters_and_stacks_it_cannot_tell() -> None:
    assert "with_stack=True" in needed("OPT101", run(40, parameters=0).build())


def test_no_optimizer() -> None:
    skipped("OPT101", run(12, marked=False).build())


def test_the_evidence_holds_what_the_trace_knows() -> None:
    def rows(b: TraceBuilder) -> dict[str, str]:
        (block,) = found("OPT101", b.build()).evidence
        assert isinstance(block, TableBlock)
        return {row["what"]: row["value"] for row in block.rows}

    launches, gradients, frames = (
        "launches per step", "gradients accumulated per step", "frames of the for-loop implementation"
    )  # fmt: skip
    assert rows(run(12)) == {launches: "12", gradients: "4"}
    assert rows(run(12, frames=True)) == {launches: "12", gradients: "4", frames: "3"}
    assert rows(run(12, frames=True, parameters=0)) == {launches: "12", frames: "3"}
