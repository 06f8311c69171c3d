"""Group statistics against numpy, one group at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanewise.measure.columns import Columns, group_statistics


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**12)), min_size=1, max_size=60))
def test_every_statistic_equals_numpy(pairs: list[tuple[int, int]]) -> None:
    key = np.array([k for k, _ in pairs])
    value = np.array([v for _, v in pairs], dtype=np.int64)
    stats = group_statistics(key, value)
    assert stats["key"].tolist() == sorted(set(key.tolist()))
    for row in stats.rows():
        group = value[key == row["key"]]
        assert row["count"] == len(group)
        assert row["total"] == int(group.sum())
        assert row["min"] == group.min()
        assert row["max"] == group.max()
        assert row["median"] == np.median(group)
        assert row["mean"] == pytest.approx(group.mean())
        assert row["stddev"] == pytest.approx(group.std(), abs=1e-3, rel=1e-6)


def test_no_rows_is_no_groups() -> None:
    assert group_statistics(np.empty(0, np.int64), np.empty(0, np.int64)).height == 0


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Columns({"a": np.zeros(1), "b": np.zeros(2)})
