"""Distinct ids, whether few or many of those that could be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanewise.trace.distinct import distinct


@given(st.lists(st.integers(0, 99), max_size=40), st.sampled_from([100, 100_000]), st.sampled_from(["i4", "i8"]))
def test_it_agrees_with_numpy(ids: list[int], below: int, dtype: str) -> None:
    column = np.array(ids, dtype=dtype)
    found = distinct(column, below)
    assert found.tolist() == sorted(set(ids))
    assert found.dtype == column.dtype


def test_no_ids_of_none() -> None:
    assert distinct(np.empty(0, np.int64), 0).tolist() == []
