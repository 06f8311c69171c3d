"""Columns survive packing exactly; what a double cannot hold is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.show.page.packing import pack, unpack

_INTS = st.lists(st.integers(-(2**53) + 1, 2**53 - 1), max_size=60)


@settings(max_examples=80, deadline=None)
@given(_INTS, _INTS, st.lists(st.floats(allow_nan=True, width=32), max_size=20))
def test_columns_come_back_as_they_were(plain: list[int], changes: list[int], floats: list[float]) -> None:
    sums = np.cumsum(np.array(changes, dtype=np.int64) // 64)
    columns = {"plain": np.array(plain, dtype=np.int64), "sums": sums, "floats": np.array(floats, dtype=np.float32)}
    back, extra = unpack(pack(columns, delta=["sums"], extra={"names": ["a\ud800", "</script>"]}))
    assert back["plain"].tolist() == plain
    assert back["sums"].tolist() == sums.tolist()
    np.testing.assert_array_equal(back["floats"], columns["floats"])
    assert extra == {"names": ["a\ud800", "</script>"]}


def test_sorted_times_take_about_a_byte_each() -> None:
    times = np.cumsum(np.random.default_rng(1).integers(0, 250, 100_000)) + 2**40
    packed = len(pack({"start": times}, delta=["start"]))
    assert packed < 110_000
    assert len(pack({"start": times})) > 1.2 * packed


def test_an_integer_that_a_browser_would_round_is_refused() -> None:
    with pytest.raises(ValueError, match="digits"):
        pack({"x": np.array([2**53], dtype=np.int64)})
