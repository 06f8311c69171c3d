"""Patterns that repeat without a break."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanewise.measure.loops.sequences import repeats_in


def found(text: str, *, longest: int = 20, at_least: int = 3) -> list[tuple[int, int, int, int]]:
    key = np.array([ord(letter) if letter != "|" else -1 for letter in text], dtype=np.int64)
    return [(r.first, r.last, r.period, r.count) for r in repeats_in(key, longest=longest, at_least=at_least)]


def test_the_shortest_pattern_wins() -> None:
    assert found("aaaa") == [(0, 3, 1, 4)]
    assert found("abababab") == [(0, 7, 2, 4)]
    assert found("xabcabcabcy") == [(1, 9, 3, 3)]


def test_what_does_not_fill_a_round_is_left_out() -> None:
    assert found("abababa") == [(0, 5, 2, 3)]


def test_too_few_rounds_and_too_long_patterns_are_none() -> None:
    assert found("abab") == []
    assert found("abcabcabc", longest=2) == []


def test_a_break_ends_every_pattern() -> None:
    assert found("aa|aa") == []
    assert found("aaa|aaaa") == [(0, 2, 1, 3), (4, 7, 1, 4)]
    assert found("||||") == []


def test_nothing_repeats_in_nothing() -> None:
    assert found("") == []


@given(st.text("abc", max_size=60), st.integers(2, 5))
def test_every_repeat_is_one_and_none_is_missed(text: str, at_least: int) -> None:
    key = np.array([ord(letter) for letter in text], dtype=np.int64)
    repeats = repeats_in(key, longest=6, at_least=at_least)
    covered = np.zeros(len(key), dtype=int)
    for repeat in repeats:
        part = text[repeat.first : repeat.last + 1]
        assert part == part[: repeat.period] * repeat.count
        assert repeat.count >= at_least
        covered[repeat.first : repeat.last + 1] += 1
    assert (covered <= 1).all()
    for period in range(1, 7):
        for begin in range(len(text) - period * at_least + 1):
            if text[begin : begin + period * at_least] == text[begin : begin + period] * at_least:
                assert covered[begin : begin + period * at_least].any()
