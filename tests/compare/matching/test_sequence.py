"""The pairing of sequences against a plain programme, whole and halved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.compare.matching import sequence
from lanewise.compare.matching.sequence import pair_up

WEIGHT = np.array([[9, 0, 3, 0], [0, 9, 0, 1], [3, 0, 9, 5], [0, 1, 5, 9]], dtype=np.int32)
SYMBOLS = st.lists(st.integers(0, 3), max_size=14)


def plain(a: list[int], b: list[int]) -> int:
    """The best sum of weights, cell by cell."""
    best = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], best[i, j] + WEIGHT[x, y])
    return int(best[-1, -1])


def check(a: list[int], b: list[int]) -> None:
    pairs = pair_up(np.array(a, np.int64), np.array(b, np.int64), WEIGHT)
    assert pairs == sorted(pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert all(WEIGHT[a[i], b[j]] > 0 for i, j in pairs)
    assert sum(int(WEIGHT[a[i], b[j]]) for i, j in pairs) == plain(a, b)


@given(SYMBOLS, SYMBOLS)
@settings(max_examples=150, deadline=None)
def test_the_sum_of_weights_is_the_greatest(a: list[int], b: list[int]) -> None:
    check(a, b)


@given(SYMBOLS, SYMBOLS)
@settings(max_examples=150, deadline=None)
def test_halving_finds_the_same_sum(a: list[int], b: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence, "_DIRECT_CELLS", 6)
        check(a, b)


def test_what_is_left_over_is_where_it_was_inserted() -> None:
    assert pair_up(np.array([0, 1, 2]), np.array([0, 3, 3, 1, 2]), np.eye(4, dtype=np.int32)) == [
        (0, 0),
        (1, 3),
        (2, 4),
    ]


def test_nothing_alike_pairs_nothing() -> None:
    assert pair_up(np.array([0, 0]), np.array([1]), np.eye(2, dtype=np.int32)) == []
    assert pair_up(np.empty(0, np.int64), np.array([1]), np.eye(2, dtype=np.int32)) == []


def test_long_sequences_stay_fast() -> None:
    import time

    draw = np.random.default_rng(1)
    a = draw.integers(0, 50, 6_000)
    b = np.delete(a, draw.integers(0, 6_000, 200))
    started = time.process_time()
    pairs = pair_up(a, b, np.eye(50, dtype=np.int32) * 100)
    assert len(pairs) == len(b)
    assert time.process_time() - started < 5
