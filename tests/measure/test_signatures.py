"""Arguments of operators from recorded text, which is untrusted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.measure.facts import Facts
from lanewise.measure.kernel.flops import FORMULAS, work_of
from lanewise.measure.signatures import Signature, Tensor
from tests.support.builder import TraceBuilder


def recorded(**arguments: Any) -> Signature | None:
    b = TraceBuilder()
    with b.op("aten::mm", **arguments) as event:
        pass
    return Facts(b.build()).signatures.of(event)


def test_tensors_scalars_lists_and_concrete_values() -> None:
    call = recorded(
        dims=[[4, 8], [], [[2], [3]], []],
        types=["c10::BFloat16", "Scalar", "TensorList", "float"],
        strides=[[8, 1], [], [[1], [1]], []],
        concrete=["", "[1, 2]", "", ""],
    )
    assert call is not None
    assert call.inputs[0] == Tensor((4, 8), "c10::BFloat16", (8, 1))
    assert call.inputs[1] is None
    # A list's type is not recorded: the others' decides where they agree; here they do not.
    assert call.inputs[2] == (Tensor((2,), "", (1,)), Tensor((3,), "", (1,)))
    assert call.inputs[3] == Tensor((), "float", ())
    assert call.whole_list(1) == (1, 2)


def test_a_list_takes_the_only_type_of_the_other_tensors() -> None:
    call = recorded(dims=[[[2], [3]], [5]], types=["TensorList", "float"])
    assert call is not None
    assert [tensor.dtype for tensor in call.tensors] == ["float"] * 3


def test_a_broadcast_dimension_counts_once() -> None:
    assert Tensor((8, 16), "float", (0, 1)).bytes == 64
    assert Tensor((8, 16), "float", (16, 1)).bytes == 512
    assert Tensor((0, 16), "float", (0, 1)).bytes == 0


def test_without_arguments_there_is_no_signature() -> None:
    assert recorded() is None


@pytest.mark.parametrize("dims", [[[-1, 4]], [["x"]], [[1 << 40, 1 << 40]], [{"a": 1}], [3]])
def test_shapes_that_no_tensor_has_are_no_tensor(dims: Any) -> None:
    call = recorded(dims=dims, types=["float"])
    assert call is not None
    assert call.tensors == ()


@pytest.mark.parametrize("text", ["", "x", "1.5", "\u00b2", "9" * 5000, "--3"])
def test_odd_numbers_are_the_default(text: str) -> None:
    call = Signature((None,), (text,))
    assert call.whole(0, 7) == 7
    assert Signature((None,), (f"[{text}]",)).whole_list(0) is None


_TENSORS = st.builds(
    Tensor,
    st.lists(st.integers(0, 9), max_size=5).map(tuple),
    st.sampled_from(["float", "c10::BFloat16", "long int", "mystery", ""]),
    st.none() | st.lists(st.integers(0, 9), max_size=5).map(tuple),
)
_TEXTS = st.sampled_from(
    ["", "0", "1", "-1", "3", "True", "[]", "[0]", "[1, 1]", "[0, 0]", "[2, -3]", "[True, False]", "x"]
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*sorted(FORMULAS), "triton_poi_fused_add_0", "triton_red_fused_sum_1"]),
    st.lists(st.tuples(st.none() | _TENSORS | st.lists(_TENSORS, max_size=3).map(tuple), _TEXTS), max_size=16),
)
def test_no_arguments_break_a_formula(name: str, arguments: list[tuple[Any, str]]) -> None:
    work = work_of(name, Signature(tuple(a for a, _ in arguments), tuple(text for _, text in arguments)))
    if work is not None:
        assert work.read >= 0
        assert work.written >= 0
        assert work.flops is None or work.flops >= 0


_IMAGES = st.builds(Tensor, st.tuples(*[st.integers(0, 9)] * 4), st.just("float"), st.none())
_OPTIONS = st.sampled_from(["[0, 0]", "[1, 1]", "[2]", "[-1, 1]", "[1, 2, 3]", "[]", "1", "0", "True", "False"])
_SPATIAL = [name for name in sorted(FORMULAS) if "conv" in name or "pool" in name]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(_SPATIAL), st.lists(_IMAGES, min_size=2, max_size=3), st.lists(_OPTIONS, min_size=12, max_size=12)
)
def test_no_options_break_a_convolution_or_a_pooling(name: str, tensors: list[Tensor], options: list[str]) -> None:
    work = work_of(name, Signature((*tensors, *[None] * (12 - len(tensors))), tuple(options)))
    assert work is None or (work.read >= 0 and work.written >= 0)


def test_an_empty_inner_dimension_is_no_division() -> None:
    work = work_of("aten::matmul", Signature((Tensor((2, 3, 0), "float"), Tensor((0, 4), "float")), ("", "")))
    assert work is None or work.flops == 0


def test_a_table_without_rows_has_no_work() -> None:
    grad, index = Tensor((1,), "float", None), Tensor((), "long int", None)
    for rows in ("-1", "0", "x"):
        assert work_of("aten::embedding_dense_backward", Signature((grad, index, None), ("", "", rows))) is None
