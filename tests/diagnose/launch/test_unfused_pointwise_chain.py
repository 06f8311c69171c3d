from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder

_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"
ADD = _ELEMENTWISE + "CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
MUL = _ELEMENTWISE + "BinaryFunctor<float>, std::array<char*, 3ul> >(int)"
CAST = _ELEMENTWISE + "bfloat16_copy_kernel_cuda(int)>"
GEMM = "nvjet_sm90_tst_128x64_h_bz_NNT"
FLOATS: dict[str, Any] = {"dims": [[64, 256], [64, 256]], "types": ["float", "float"]}
OTHERS: dict[str, Any] = {"dims": [[64, 128], [64, 128]], "types": ["float", "float"]}


def steps(
    *kernels: tuple[str, str, dict[str, Any]], kernel: float = 5.0, operator: float = 30.0, stream: str = "7"
) -> TraceBuilder:
    """Three steps that run the given (operator, kernel, shapes) one after another."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for name, what, shapes in kernels:
                with b.op(name, head=operator - 10, tail=5, **shapes):
                    b.launch(what, duration=kernel, call=5, stream=stream)
    return b


def test_two_pointwise_kernels_over_the_same_elements() -> None:
    result = found("LAU102", steps(("aten::add", ADD, FLOATS), ("aten::mul", MUL, FLOATS), operator=60).build())
    assert title("LAU102", result) == (
        "2 pointwise kernels per step run in 1 chain over the same elements (add > mul): fused, each chain is one "
        "kernel, 1 fewer."
    )
    # One operator fewer, and one call of what is compiled.
    assert (result.gain_ns, result.confidence) == (60_000 - 20_000, "high")
    assert result.evidence[0].rows[0]["hop"] == 2 * 64 * 256 * 4


def test_a_device_bound_run_gains_all_kernels_but_the_longest() -> None:
    trace = steps(("aten::add", ADD, FLOATS), ("aten::mul", MUL, FLOATS), kernel=500).build()
    result = found("LAU102", trace)
    assert result.gain_ns == pytest.approx(500_000)


def layers(chain: int, *, number: int = 6) -> TraceBuilder:
    """Products that stand in the way, with a chain of additions of 30 us each behind each of them."""
    operators = [("aten::mm", GEMM, FLOATS), *[("aten::add", ADD, FLOATS)] * chain]
    return steps(*operators * number, kernel=1.0)


def test_a_chain_that_is_worth_it_is_compiled_by_itself_wherever_it_comes() -> None:
    assert found("LAU102", layers(4).build()).gain_ns == pytest.approx(6 * (3 * 30_000 - 40_000), rel=0.01)


def test_chains_that_are_not_are_compiled_with_all_that_is_around_them() -> None:
    assert found("LAU102", layers(2).build()).gain_ns == pytest.approx(6 * 30_000 - 20_000, rel=0.01)


def test_what_torch_has_an_operator_for_needs_no_compiler() -> None:
    names = ("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul")
    result = found("LAU102", steps(*[(f"aten::{name}", MUL, FLOATS) for name in names], kernel=1.0).build())
    assert result.gain_ns == pytest.approx(7 * 30_000, rel=0.01)
    assert result.fix is not None
    assert result.fix.startswith('`F.gelu(x, approximate="tanh")` is pow > mul > add > mul > tanh ... (8 in all)')


def test_the_threshold_is_two_kernels() -> None:
    found("LAU102", steps(("aten::add", ADD, FLOATS), ("aten::mul", MUL, FLOATS)).build())
    cleared("LAU102", steps(("aten::add", ADD, FLOATS), ("aten::mm", GEMM, FLOATS)).build())


def test_the_number_of_elements_must_stay() -> None:
    cleared("LAU102", steps(("aten::add", ADD, FLOATS), ("aten::mul", MUL, OTHERS)).build())


def test_a_chain_may_be_asked_to_be_longer() -> None:
    b = steps(("aten::add", ADD, FLOATS), ("aten::mul", MUL, FLOATS))
    cleared("LAU102", b.build(), kernels_from=3)


def test_other_streams_run_beside_each_other() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for name, what, stream in (("aten::add", ADD, "7"), ("aten::mul", MUL, "9")):
                with b.op(name, head=20, **FLOATS):
                    b.launch(what, stream=stream)
    cleared("LAU102", b.build())


def test_conversions_alone_are_another_matter() -> None:
    cleared("LAU102", steps(("aten::copy_", CAST, FLOATS), ("aten::copy_", CAST, FLOATS)).build())
    found("LAU102", steps(("aten::copy_", CAST, FLOATS), ("aten::mul", MUL, FLOATS)).build())


def test_inside_a_compiled_region_the_compiler_has_decided() -> None:
    b = TraceBuilder()
    for _ in range(3):
        with b.step(), b.op("Torch-Compiled Region: 0/0"):
            for name, what in (("aten::add", ADD), ("aten::mul", MUL)):
                with b.op(name, head=20, **FLOATS):
                    b.launch(what)
    cleared("LAU102", b.build())


def test_the_grid_stands_in_for_shapes() -> None:
    result = found("LAU102", steps(("aten::add", ADD, {}), ("aten::mul", MUL, {})).build())
    assert result.confidence == "medium"
    assert "about as many elements" in title("LAU102", result)
    assert result.evidence[0].rows[0]["elements"] == 264 * 128 * 4


@pytest.mark.parametrize(
    ("weight", "steps_over"),
    [
        # x @ w with another number of elements; w of the chain's size, but transposed, as nn.Linear passes it; a
        # product that reads the chain's result.
        ({"dims": [[64, 32], [32, 256]], "types": ["float", "float"]}, True),
        ({"dims": [[64, 32], [64, 256]], "types": ["float", "float"], "strides": [[32, 1], [1, 64]]}, True),
        ({"dims": [[64, 256], [256, 256]], "types": ["float", "float"]}, False),
    ],
)
def test_an_independent_product_may_lie_between(weight: dict[str, Any], steps_over: bool) -> None:
    trace = steps(("aten::silu", ADD, FLOATS), ("aten::mm", GEMM, weight), ("aten::mul", MUL, FLOATS)).build()
    if steps_over:
        assert found("LAU102", trace).confidence == "medium"
    else:
        cleared("LAU102", trace)


REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >"
WHOLE: dict[str, Any] = {"dims": [[64, 256]], "types": ["float"]}
ROWS: dict[str, Any] = {"dims": [[64, 256], [64, 1]], "types": ["float", "float"]}


def test_a_softmax_written_out_is_one_chain() -> None:
    written_out = steps(
        ("aten::max", REDUCE, WHOLE),
        ("aten::sub", ADD, ROWS),
        ("aten::exp", ADD, WHOLE),
        ("aten::sum", REDUCE, WHOLE),
        ("aten::div", ADD, ROWS),
    )
    assert "5 pointwise kernels per step run in 1 chain" in title("LAU102", found("LAU102", written_out.build()))


@pytest.mark.parametrize(
    "after",
    [
        # Not spread again; spread from a single value, which has to wait for all of them; over other elements.
        {"dims": [[64, 256], [64, 256]], "types": ["float", "float"]},
        {"dims": [[64, 256], [1, 1]], "types": ["float", "float"]},
        {"dims": [[64, 128], [64, 1]], "types": ["float", "float"]},
    ],
)
def test_a_reduction_whose_result_goes_elsewhere_ends_a_chain(after: dict[str, Any]) -> None:
    cleared("LAU102", steps(("aten::sum", REDUCE, WHOLE), ("aten::mul", MUL, after)).build())


def test_without_a_device_there_are_no_kernels() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::add"):
        pass
    skipped("LAU102", b.build())


def products(
    *, bias: tuple[int, ...] = (256,), around: str = "", after: str = "", dtype: str = "float", number: int = 4
) -> TraceBuilder:
    """Products, each with something added behind it."""
    b = TraceBuilder()
    for _ in range(3):
        with b.step():
            for _ in range(number):
                with b.op("aten::mm", dims=[[64, 256], [256, 256]], types=["float", "float"], head=20):
                    b.launch(GEMM, duration=30)
                with ExitStack() as stack:
                    if around:
                        stack.enter_context(b.op(around))
                    with b.op("aten::add", dims=[[64, 256], list(bias), []], types=["float", dtype, "Scalar"], head=20):
                        b.launch(ADD, duration=15)
                if after:
                    with b.op(after, dims=[[64, 256]], types=["float"], head=20):
                        b.launch(MUL, duration=15)
    return b


def test_a_bias_that_the_product_could_add() -> None:
    result = found("LAU102", products().build())
    assert title("LAU102", result) == (
        "4 biases per step added by an operator of its own behind a matrix product, which could add it at no cost: 60.0 us "
        "on the GPU, 104.0 us on the host."
    )
    assert result.fix is not None
    assert result.fix.startswith("`torch.nn.functional.linear(x, weight, bias)`")
    assert result.gain_ns == pytest.approx(4 * 26_000 - 15_000, rel=0.02)  # the device is busy at the end either way


def test_what_a_product_cannot_add_is_no_bias() -> None:
    cleared("LAU102", products(bias=(64, 256)).build())  # a residual
    cleared("LAU102", products(bias=(1,)).build())
    cleared("LAU102", products(dtype="c10::Half").build())


def test_a_linear_layer_that_torch_takes_apart_is_torchs_own() -> None:
    cleared("LAU102", products(around="aten::linear").build())


def test_a_bias_with_a_function_behind_it_is_part_of_the_chain() -> None:
    result = found("LAU102", products(after="aten::gelu").build())
    assert "in 4 chains over the same elements (add > gelu)" in title("LAU102", result)
    assert "bias" not in title("LAU102", result)
