"""Grouping rows by one key."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanewise.measure.group_keys import combined


@given(
    st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 2), st.integers(-(2**62), 2**62)), min_size=1, max_size=60)
)
def test_rows_have_the_same_key_exactly_if_they_are_equal(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    keys = combined(*columns)
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            assert (keys[i] == keys[j]) == (a == b)


def test_order_of_the_columns_matters() -> None:
    one, two = np.arange(100), np.arange(100)[::-1].copy()
    assert (combined(one, two) != combined(two, one)).all()


def test_a_grid_of_small_numbers_has_no_collision() -> None:
    a, b, c = (axis.ravel() for axis in np.meshgrid(np.arange(-1, 60), np.arange(-1, 60), np.arange(-1, 60)))
    assert len(np.unique(combined(a, b, c))) == len(a)
