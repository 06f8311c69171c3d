"""Chains of small kernels that one generated kernel covers.

The name of a generated kernel lists the operators that it covers. Between two pairs of ops that are certainly the same,
the unmatched small ops of one side belong to the unmatched generated kernels of the other, in order: by name where an
operator is listed, by order alone where nothing lists it (a decomposition, a cut name). Recorded sizes veto: a kernel
cannot cover an op on twice its elements or more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.compare.matching.kernels import identity, operator_words
from lanewise.compare.sides.step_work import Op, Work

__all__ = ["Fused", "find_fused"]

# What a compiler fuses. Products, attention and communication keep kernels of their own.
_SMALL = frozenset(
    {"pointwise", "reduction", "copy kernel", "normalisation", "softmax", "embedding and indexing", "random", "foreach"}
    | {"other", "triton"}
)
_SIZE_FACTOR = 2.0

# Scores of covering an op by name, and by order alone. A kernel that covers nothing yet is worth ten of the latter: it
# exists because it covers something. One that covers by name is less likely to cover the next op by order.
_BY_NAME, _BY_ORDER, _NEW_KERNEL, _MIXED = 100, 1, 10, 5
_NEVER = -(1 << 40)


class Fused(NamedTuple):
    """One kernel of the one side and the ops of the other that it covers; `sure` if its name lists them all."""

    one: int
    many: tuple[int, ...]
    sure: bool


def find_fused(
    many: Work, one: Work, pairs: list[tuple[int, int]], free_many: np.ndarray, free_one: np.ndarray
) -> list[Fused]:
    """Find what generated kernels of `one` cover of `many`.

    Args:
        pairs: positions (of `many`, of `one`) that are the same work, increasing on both sides: the fences.
        free_many, free_one: positions that nothing matches yet.
    """
    generated = [j for j in np.flatnonzero(free_one).tolist() if identity(one.ops[one.at[j]].name).fused]
    small = [i for i in np.flatnonzero(free_many).tolist() if _is_small(many.ops[many.at[i]])]
    if not generated or not small:
        return []
    fences = [(-1, -1), *pairs, (len(many.at), len(one.at))]
    score = _scores(many.ops, one.ops)
    covers: dict[int, list[tuple[int, bool]]] = {}
    left: list[int] = []
    starts_many = np.array([i for i, _ in fences])
    starts_one = np.array([j for _, j in fences])
    gap_of_many = np.searchsorted(starts_many, small, side="right")
    gap_of_one = np.searchsorted(starts_one, generated, side="right")
    for gap in np.unique(gap_of_many).tolist():
        ops = [small[k] for k in np.flatnonzero(gap_of_many == gap).tolist()]
        kernels = [generated[k] for k in np.flatnonzero(gap_of_one == gap).tolist()]
        assigned = _assign(many, one, ops, kernels, score)
        for position, kernel in zip(ops, assigned, strict=True):
            if kernel < 0:
                left.append(position)
            else:
                by_name = score[many.at[position], one.at[kernel]] >= _BY_NAME
                covers.setdefault(kernel, []).append((position, bool(by_name)))
    _beyond_fences(many, one, left, generated, gap_of_one, starts_many, score, covers)
    return [
        Fused(kernel, tuple(sorted(p for p, _ in found)), all(named for _, named in found))
        for kernel, found in sorted(covers.items())
    ]


def _is_small(op: Op) -> bool:
    if op.kind == "set":
        return False
    if op.kind == "copy":
        return "DtoD" in op.name
    return op.kind == "kernel" and identity(op.name).family in _SMALL


def _scores(many: list[Op], one: list[Op]) -> np.ndarray:
    """How well each op of `one` covers each of `many`; 0 where it cannot."""
    words = [_words(op) for op in many]
    score = np.zeros((len(many), len(one)), dtype=np.int32)
    for j, kernel in enumerate(one):
        listed = frozenset(identity(kernel.name).fused)
        if not listed:
            continue
        for i, op in enumerate(many):
            if not _is_small(op) or not _fits(op, kernel):
                continue
            score[i, j] = _BY_NAME if words[i] & listed else _BY_ORDER
    return score


def _words(op: Op) -> frozenset[str]:
    """Under which names a generated kernel may list an op: its operators', and what it covers itself if generated."""
    return frozenset(identity(op.name).fused).union(*(operator_words(name) for name in op.operators[:3]))


def _fits(op: Op, kernel: Op) -> bool:
    """Whether the recorded sizes allow it; True where they are not recorded."""
    return op.elements < 0 or kernel.elements < 0 or op.elements < _SIZE_FACTOR * max(1, kernel.elements)


def _assign(many: Work, one: Work, ops: list[int], kernels: list[int], score: np.ndarray) -> list[int]:
    """The kernel that covers each op of a gap, or -1: in order, with the highest sum of scores."""
    if not kernels:
        return [-1] * len(ops)
    value = score[many.at[ops]][:, one.at[kernels]].astype(np.int64)
    named = value >= _BY_NAME
    # best[i, j]: score of the first i ops when kernel j - 1 was the last to cover one (j = 0: none did yet).
    best = np.full((len(ops) + 1, len(kernels) + 1), _NEVER, dtype=np.int64)
    best[0, 0] = 0
    for i in range(len(ops)):
        before = np.maximum.accumulate(best[i])[:-1] + _NEW_KERNEL
        stay = best[i, 1:] - np.where(named[i] == named[max(0, i - 1)], 0, _MIXED)
        covered = np.where(value[i] > 0, np.maximum(stay, before) + value[i], _NEVER)
        best[i + 1, 0] = best[i, 0]
        best[i + 1, 1:] = np.maximum(best[i, 1:], covered)
    assigned = [-1] * len(ops)
    j = int(np.argmax(best[-1]))
    for i in range(len(ops) - 1, -1, -1):
        if j == 0 or best[i + 1, j] == best[i, j]:
            continue
        assigned[i] = kernels[j - 1]
        # Of equal ways the one in which a kernel covers as much as it can before the next one begins.
        if best[i + 1, j] == best[i, :j].max() + _NEW_KERNEL + value[i, j - 1]:
            j = int(np.argmax(best[i, :j]))
    return assigned


def _beyond_fences(
    many: Work,
    one: Work,
    left: list[int],
    generated: list[int],
    gap_of_one: np.ndarray,
    starts_many: np.ndarray,
    score: np.ndarray,
    covers: dict[int, list[tuple[int, bool]]],
) -> None:
    """Compilers move pointwise work across products: ops still left go to the nearest kernel that lists them."""
    place = starts_many[np.minimum(gap_of_one, len(starts_many) - 1)]
    kernel_op = one.at[np.array(generated)]
    for position in left:
        named = np.flatnonzero(score[many.at[position], kernel_op] >= _BY_NAME)
        if len(named):
            nearest = named[np.argmin(np.abs(place[named] - position))]
            covers.setdefault(generated[int(nearest)], []).append((position, True))
