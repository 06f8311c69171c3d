"""The best monotone pairing of two sequences: order is kept on both sides, and the weights of the pairs add up to most.

A weight of 0 forbids a pair; leaving an element out costs nothing, so deletions, insertions and replacements fall out
by themselves. With free gaps a whole row of the dynamic programme is three array operations; long sequences are halved
(Hirschberg), which keeps memory small.
"""

from __future__ import annotations

import numpy as np

__all__ = ["pair_up"]

# Cells that are solved with the whole score table in memory: 4 bytes each.
_DIRECT_CELLS = 4_000_000


def pair_up(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> list[tuple[int, int]]:
    """Pair the elements of two sequences.

    Args:
        a, b: symbols, shape (n,) and (m,): rows and columns of `weight`.
        weight: int32, >= 0, of pairing each symbol of `a` with each of `b`.

    Returns:
        Pairs of positions, increasing on both sides. Among equally good pairings the one that pairs early elements.
    """
    pairs: list[tuple[int, int]] = []
    _solve(a, b, weight, 0, 0, int(weight.max(initial=0)), pairs)
    return pairs


def _solve(
    a: np.ndarray, b: np.ndarray, weight: np.ndarray, from_a: int, from_b: int, most: int, pairs: list[tuple[int, int]]
) -> None:
    head = _common(a, b, weight, most)
    pairs += [(from_a + i, from_b + i) for i in range(head)]
    a, b, from_a, from_b = a[head:], b[head:], from_a + head, from_b + head
    tail = _common(a[::-1], b[::-1], weight, most)
    rest_a, rest_b = len(a) - tail, len(b) - tail
    if rest_a and rest_b:
        if rest_a * rest_b <= _DIRECT_CELLS or rest_a < 2:
            pairs += [(from_a + i, from_b + j) for i, j in _direct(a[:rest_a], b[:rest_b], weight)]
        else:
            middle = rest_a // 2
            up = _last_row(a[:middle], b[:rest_b], weight)
            down = _last_row(a[middle:rest_a][::-1], b[:rest_b][::-1], weight)[::-1]
            cut = int(np.argmax(up + down))
            _solve(a[:middle], b[:cut], weight, from_a, from_b, most, pairs)
            _solve(a[middle:rest_a], b[cut:rest_b], weight, from_a + middle, from_b + cut, most, pairs)
    pairs += [(from_a + rest_a + i, from_b + rest_b + i) for i in range(tail)]


def _common(a: np.ndarray, b: np.ndarray, weight: np.ndarray, most: int) -> int:
    """Length of the common beginning whose pairs all have the greatest weight: pairing them is never wrong."""
    n = min(len(a), len(b))
    if n == 0 or most == 0:
        return 0
    best = weight[a[:n], b[:n]] == most
    return n if best.all() else int(np.argmin(best))


def _last_row(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Best score of all of `a` against each beginning of `b`, shape (m + 1,)."""
    row = np.zeros(len(b) + 1, dtype=np.int64)
    for symbol in a.tolist():
        _advance(row, row, weight[symbol][b])
    return row


def _advance(above: np.ndarray, row: np.ndarray, weight: np.ndarray) -> None:
    """One row of the programme from the one above; `row` may be the same array."""
    taken = above[:-1] + weight
    np.maximum(above[1:], taken, out=row[1:])
    row[0] = 0
    np.maximum.accumulate(row, out=row)


def _direct(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> list[tuple[int, int]]:
    # Both reversed: tracing back from the end then pairs early elements first.
    a, b = a[::-1], b[::-1]
    score = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int32)
    for i, symbol in enumerate(a.tolist()):
        _advance(score[i], score[i + 1], weight[symbol][b].astype(np.int32))
    pairs: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        here = score[i, j]
        if here == score[i - 1, j - 1] + weight[a[i - 1], b[j - 1]] and weight[a[i - 1], b[j - 1]] > 0:
            pairs.append((len(a) - i, len(b) - j))
            i, j = i - 1, j - 1
        elif here == score[i - 1, j]:
            i -= 1
        else:
            j -= 1
    return pairs
