"""Rows that share an id: distinct ids, whether few or many of those that could be; medians."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanewise.trace.groups import distinct, in_order, median_of_group


@given(st.lists(st.integers(0, 99), max_size=40), st.sampled_from([100, 100_000]), st.sampled_from(["i4", "i8"]))
def test_it_agrees_with_numpy(ids: list[int], below: int, dtype: str) -> None:
    column = np.array(ids, dtype=dtype)
    found = distinct(column, below)
    assert found.tolist() == sorted(set(ids))
    assert found.dtype == column.dtype


def test_no_ids_of_none() -> None:
    assert distinct(np.empty(0, np.int64), 0).tolist() == []


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-100, 100)), min_size=1, max_size=40),
    st.sampled_from([1, 2**61]),
)
def test_the_median_of_a_group_is_numpys(pairs: list[tuple[int, int]], far: int) -> None:
    key, value = np.array(pairs, dtype=np.int64).T
    key *= far  # keys far apart cannot be sorted as one number
    assert median_of_group(key, value).tolist() == [np.median(value[key == one]) for one in key]


def test_values_in_order_are_what_unique_gives() -> None:
    for values in (np.array([], dtype=np.int64), np.array([3]), np.random.default_rng(1).integers(0, 50, 200)):
        assert in_order(values).tolist() == np.unique(values).tolist()
