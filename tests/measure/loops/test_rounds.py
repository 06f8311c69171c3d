"""Loops whose rounds need each other, and loops whose rounds do not."""

from __future__ import annotations

import pytest

from lanewise.measure.loops.rounds import are_independent, piece_of
from lanewise.measure.signatures import Signature, Tensor

Operator = tuple[str, Signature]


def op(name: str, *shapes: tuple[int, ...], values: tuple[str, ...] = ()) -> Operator:
    tensors = tuple(Tensor(shape, "float") for shape in shapes)
    return f"aten::{name}", Signature((*tensors, *(None for _ in values)), (*("" for _ in tensors), *values))


SAMPLES = {
    "a product and a function of each": ((8, 64), [op("matmul", (8, 64), (64, 64)), op("relu", (8, 64))]),
    "picked in the round": (None, [op("select", (32, 8, 64), values=("0", "3")), op("mm", (8, 64), (64, 64))]),
    "two layers": (
        (64,),
        [
            op("unsqueeze", (64,), values=("0",)),
            op("linear", (1, 64), (128, 64), (128,)),
            op("gelu", (1, 128)),
            op("linear", (1, 128), (10, 128), (10,)),
        ],
    ),
    "a weight that is turned around": (
        (8, 64),
        [op("t", (32, 64)), op("matmul", (8, 64), (64, 32)), op("add", (8, 32), (32,))],
    ),
    "each with a matrix of its own": (
        None,
        [op("select", (16, 8, 64), values=("0", "1")), op("matmul", (8, 64), (64, 64)), op("tanh", (8, 64))],
    ),
}

RECURRENCES = {
    "layers": (None, [op("linear", (8, 64), (64, 64)), op("relu", (8, 64))]),
    "layers whose weights were taken apart": ((64, 64), [op("matmul", (8, 64), (64, 64)), op("relu", (8, 64))]),
    "a recurrent cell": (
        (8, 64),
        [op("matmul", (8, 64), (64, 64)), op("add", (8, 64), (8, 64)), op("tanh", (8, 64))],
    ),
    "a recurrent cell that picks its input": (
        None,
        [
            op("select", (32, 8, 16), values=("0", "2")),
            op("linear", (8, 16), (64, 16)),
            op("add", (8, 64), (8, 64)),
            op("tanh", (8, 64)),
        ],
    ),
    "a product of many matrices": (None, [op("select", (32, 64, 64), values=("0", "2")), op("mm", (8, 64), (64, 64))]),
    "a sum": ((8, 64), [op("matmul", (8, 64), (64, 32)), op("add_", (8, 32), (8, 32))]),
    "a state beside the result": (
        (16,),
        [
            op("matmul", (64, 16), (16,)),
            op("add", (64,), (64,)),
            op("matmul", (4, 64), (64,)),
        ],
    ),
    "a residual": ((8, 64), [op("linear", (8, 64), (64, 64)), op("add", (8, 64), (8, 64))]),
    "something unknown": ((8, 64), [op("matmul", (8, 64), (64, 64)), op("sort", (8, 64))]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_one_piece_after_another(name: str) -> None:
    piece, operators = SAMPLES[name]
    assert are_independent(operators, piece)


@pytest.mark.parametrize("name", RECURRENCES)
def test_rounds_that_may_need_the_one_before(name: str) -> None:
    piece, operators = RECURRENCES[name]
    assert not are_independent(operators, piece)


def test_without_shapes_nothing_is_said() -> None:
    assert not are_independent([("aten::matmul", None)], (8, 64))


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        (op("unbind", (32, 8, 64), values=("1",)), (32, 64)),
        (op("split", (32, 8), values=("4", "0")), (4, 8)),
        (op("transpose", (32, 8), values=("0", "1")), (8, 32)),
        (op("view", (32, 8), values=("[4, -1]",)), (4, 64)),
        (op("unsqueeze", (32, 8), values=("-1",)), (32, 8, 1)),
        (op("squeeze", (32, 1), values=("1",)), (32,)),
        (op("select", (32, 8), values=("7", "0")), None),
        (op("view", (32, 8), values=("?",)), None),
    ],
)
def test_what_a_view_shows(operator: Operator, shape: tuple[int, ...] | None) -> None:
    assert piece_of(*operator) == shape
