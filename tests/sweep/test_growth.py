"""Shapes at another batch size."""

from __future__ import annotations

import pytest

from lanewise.sweep.growth import Growth

PARAMETERS = frozenset({(256, 64), (256,), (10, 256), (1, 32, 48)})


@pytest.mark.parametrize(
    ("batch", "shape", "grown"),
    [
        (1, (1, 64), (16, 64)),
        (1, (8, 64), (128, 64)),  # flattened: sequence times batch
        (1, (256, 64), (256, 64)),  # a weight
        (1, (64, 256), (64, 256)),  # the same, transposed
        (1, (12, 1, 64), (12, 16, 64)),  # the batch second
        (1, (), ()),
        (4, (4, 64), (64, 64)),
        (4, (32, 64), (512, 64)),
        (4, (256,), (256,)),
        (4, (7, 4, 64), (7, 64, 64)),
        (4, (7, 5), (7, 5)),
        (1, (1, 32, 48), (16, 32, 48)),  # like a position embedding, but the batch comes first
    ],
)
def test_the_dimension_of_the_batch_grows(batch: int, shape: tuple[int, ...], grown: tuple[int, ...]) -> None:
    assert Growth(batch, 16 * batch, PARAMETERS).shape(shape) == grown


def test_what_a_schema_calls_a_weight_stays() -> None:
    growth = Growth(1, 16, frozenset())
    assert growth.argument("weight", (1, 3, 3, 3)) == (1, 3, 3, 3)
    assert growth.argument("input", (1, 3, 8, 8)) == (16, 3, 8, 8)


def test_what_is_the_same_for_each_item_stays() -> None:
    growth = Growth(1, 16, frozenset())
    assert growth.argument("other", (256,), [(1, 256), (256,)]) == (256,)
    assert growth.argument("self", (1, 256), [(1, 256), (256,)]) == (16, 256)
    assert growth.argument("other", (8, 256), [(8, 256), (8, 256)]) == (128, 256)


def test_products_grow_in_their_rows_or_in_what_is_summed_over() -> None:
    growth = Growth(1, 16, PARAMETERS)
    assert growth.product((1, 64), (64, 256), left_is_transposed=False) == ((16, 64), (64, 256))
    assert growth.product((256, 1), (1, 64), left_is_transposed=True) == ((256, 16), (16, 64))


def test_one_row_of_activations_may_be_shaped_like_another_weight() -> None:
    growth = Growth(1, 16, PARAMETERS | {(1, 64)})  # a head with one output
    assert growth.product((256, 1), (1, 64), left_is_transposed=True) == ((256, 16), (16, 64))
    assert growth.product((1, 64), (64, 256), left_is_transposed=False) == ((16, 64), (64, 256))


def test_lists_of_sizes_grow_and_others_do_not() -> None:
    growth = Growth(1, 16, PARAMETERS)
    assert growth.sizes("size", [1, 64]) == [16, 64]
    assert growth.sizes("dim", [1]) == [1]
    assert growth.sizes("kernel_size", [1, 1]) == [1, 1]
