from __future__ import annotations

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(
    passes: int,
    *,
    each: float = 500.0,
    step: float = 10_000.0,
    operator: str = "aten::_foreach_mul_",
    kernel: float = 5.0,
    forward: float = 5.0,
) -> TraceBuilder:
    """Three steps of the given length with an optimizer of some passes."""
    b = TraceBuilder()
    for _ in range(3):
        begin = b.now
        with b.step(head=0, tail=0):
            with b.op("aten::mm"):
                b.launch("gemm", duration=forward)
            with b.span("Optimizer.step#AdamW.step", Kind.ANNOTATION, head=0, tail=0):
                for _ in range(passes):
                    with b.op(operator, head=each - 10, tail=5):
                        b.launch("multi_tensor_apply_kernel<Axpby>", duration=kernel, call=5)
            b.wait(max(0, begin + step - 30 - b.now))
            with b.op("aten::add", head=20, tail=0):
                b.launch(duration=1, delay=5, call=10)
    return b


def test_several_passes_over_the_parameters() -> None:
    result = found("OPT102", run(4).build())
    assert title("OPT102", result) == (
        "The optimizer makes 4 passes over all parameters where a fused one makes one: 2.00 ms per step, 20 % of it."
    )
    assert result.gain_ns == pytest.approx(1_000_000)


def test_a_device_bound_run_pays_on_the_device() -> None:
    result = found("OPT102", run(4, each=20, step=0, kernel=100, forward=600).build())
    assert result.gain_ns == pytest.approx(300_000)


def test_the_thresholds() -> None:
    cleared("OPT102", run(2, each=1500).build())
    cleared("OPT102", run(3, each=166).build())  # 5 % of the step
    found("OPT102", run(3, each=168).build())


def test_the_fused_optimizer_is_what_it_should_be() -> None:
    assert "fused" in cleared("OPT102", run(4, operator="aten::_fused_adamw_").build())


def test_no_optimizer() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("aten::mm"):
            b.launch()
    skipped("OPT102", b.build())
