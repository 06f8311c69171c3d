from __future__ import annotations

from collections.abc import Sequence

import pytest

from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def loop(
    names: Sequence[str],
    times: int,
    *,
    kernel: str = "vectorized_elementwise_kernel<4>",
    wait: bool = False,
    around: str = "",
) -> TraceBuilder:
    """Three steps with the loop and one operator before it; each operator takes 20 us."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            with b.op("aten::empty"):
                pass
            begin = b.now
            for _ in range(times):
                for name in names:
                    with b.op(name, head=10, tail=5):
                        b.launch(kernel, duration=1, call=5)
                        if wait:
                            b.synchronize()
            if around:
                b.slice(around, Kind.ANNOTATION, begin - 0.1, b.now - begin + 0.2)
    return b


def test_a_python_loop_over_tensors() -> None:
    result = found("LAU103", loop(["aten::sin", "aten::mul"], 10).build())
    assert title("LAU103", result) == (
        "sin > mul runs 10 times in a row: a Python loop over tensors, 400.0 us of host time per step."
    )
    assert result.gain_ns == pytest.approx(360_000)
    assert len(result.events or ()) == 3 * 20 - 20  # steady steps only


def test_the_threshold_is_ten_rounds() -> None:
    found("LAU103", loop(["aten::sin", "aten::mul"], 10).build())
    cleared("LAU103", loop(["aten::sin", "aten::mul"], 9).build())


def test_the_layers_of_a_model_repeat_too() -> None:
    assert "matrix work" in cleared("LAU103", loop(["aten::linear", "aten::relu"], 12).build())
    assert "matrix work" in cleared("LAU103", loop(["my_layer"], 12, kernel="nvjet_sm90_h_bz_NNT").build())


def test_products_whose_operands_are_picked_one_by_one_are_a_loop() -> None:
    assert "select > mm runs 12 times" in title(
        "LAU103", found("LAU103", loop(["aten::select", "aten::mm"], 12).build())
    )
    assert "matrix work" in cleared("LAU103", loop(["aten::mm"], 12).build())
    # A recurrent cell picks its input, too, and needs the round before.
    assert "matrix work" in cleared("LAU103", loop(["aten::select", "aten::mm", "aten::tanh"], 12).build())


def test_calls_of_compiled_code_are_no_loop_over_tensors() -> None:
    calls = ["TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/0"]
    assert "CMP103" in cleared("LAU103", loop(calls, 12).build())


def test_rounds_that_wait_are_readbacks() -> None:
    assert "SYN101" in cleared("LAU103", loop(["aten::item"], 12, wait=True).build())


@pytest.mark.parametrize("around", ["Optimizer.step#SGD.step", "FSDP::pre_forward (0)", "nccl:all_reduce"])
def test_rows_of_frameworks_and_collectives_are_not_the_users_loop(around: str) -> None:
    cleared("LAU103", loop(["aten::mul_"], 12, around=around).build())


def test_a_loop_that_starts_nothing_is_about_views() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(12):
                with b.op("aten::select", head=10):
                    pass
            with b.op("aten::add"):
                b.launch()
    assert "LAU105" in cleared("LAU103", b.build())


def test_a_loop_ends_with_its_step() -> None:
    cleared("LAU103", loop(["aten::sin"], 9).build())


def test_the_threshold_of_the_longest_pattern_is_twenty_operators() -> None:
    names = [f"aten::op{i}" for i in range(21)]
    found("LAU103", loop(names[:20], 10).build())
    cleared("LAU103", loop(names, 10).build())
    found("LAU103", loop(names, 10).build(), longest=21)


def test_no_operators() -> None:
    b = TraceBuilder()
    with b.step():
        b.launch(["a", "b"])
    skipped("LAU103", b.build())
