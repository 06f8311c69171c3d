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


def samples(rows: int, *, state: bool = False, host: float = 20.0, product: float = 6.5) -> TraceBuilder:
    """`stack([relu(sample @ weight) for sample in x.unbind(0)])` for 32 samples of 256 x 2048 on an H100; with a state, the
    product is that of the state, and the sample is added."""
    b = TraceBuilder()
    sample, weight = [rows, 2048], [2048, 2048]
    types = ["c10::BFloat16", "c10::BFloat16"]
    for _ in range(3):
        with b.step():
            with b.op(
                "aten::unbind", dims=[[32, *sample], []], types=[types[0], "Scalar"], concrete=["", "0"], head=host
            ):
                pass
            for _ in range(32):
                with b.op("aten::matmul", dims=[sample, weight], types=types, head=host):
                    b.launch("nvjet_sm90_h_bz_NNT", duration=product)
                with b.op(
                    "aten::add" if state else "aten::relu",
                    dims=[sample, sample] if state else [sample],
                    types=types[: 1 + state],
                    head=host,
                ):
                    b.launch(duration=1.2)
            with b.op("aten::stack", head=host):
                b.launch(duration=10)
    return b


def test_one_sample_after_another_is_a_loop_where_shapes_tell() -> None:
    result = found("LAU103", samples(256).build())
    assert "matmul > relu runs 32 times" in title("LAU103", result)
    # Two launches of 65 are left, and neither `unbind` nor `stack`.
    assert result.gain_ns == pytest.approx((64 * 26 + 2 * 24) * 1e3 * 31 / 32, rel=0.05)


def test_a_recurrence_over_samples_is_none() -> None:
    assert "matrix work" in cleared("LAU103", samples(256, state=True).build())


def test_products_at_once_run_at_the_rate_of_a_large_product() -> None:
    """68.7 GFLOP take 99 us at 70 % of an H100's 989 TFLOP/s, the additions of 67 MB 20 us."""
    slow = samples(256, host=1.0, product=40.0).build()
    left = 32 * (40 + 1.2) + 10 - found("LAU103", slow).gain_ns / 1e3
    assert left == pytest.approx(99 + 20, rel=0.05)


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
