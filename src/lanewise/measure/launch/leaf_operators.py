"""Leaf operators: those that launch device work themselves, in the order in which the host came to them.

Patterns of several operators (a normalisation spelled out, attention by hand) are found by spelling: one letter per
operator, a regular expression over the word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.compile.compilation import inside_compilation
from lanewise.trace.groups import distinct

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Leaves", "measure_leaves"]

_LETTERS = {
    "aten::pow": "p", "aten::square": "p", "aten::mean": "m", "aten::add": "a", "aten::add_": "a", "aten::rsqrt": "r",
    "aten::mul": "x", "aten::mul_": "x", "aten::copy_": "c", "aten::div": "d", "aten::div_": "d", "aten::sqrt": "q",
    "aten::_softmax": "s", "aten::_safe_softmax": "s", "aten::bmm": "b", "aten::baddbmm": "b", "aten::masked_fill": "k",
    "aten::masked_fill_": "k", "aten::where": "k", "aten::native_dropout": "n", "aten::cat": "t",
    "aten::sub": "u", "aten::sub_": "u", "aten::var": "v", "aten::std": "v",
}  # fmt: skip
_OTHER, _BREAK = "o", "|"


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaf operators of the steady steps, by host lane and start.

    Attributes:
        operator: event id of each leaf.
        time: device time that each launched, ns.
        word: one letter per leaf, and a `|` before each new lane or step.
        at: leaf of each letter, -1 for a `|`.
        row: rows of `Trace.device_work`, grouped by leaf. first: where each leaf's rows begin in it, and the end.
    """

    operator: np.ndarray
    time: np.ndarray
    word: str
    at: np.ndarray
    row: np.ndarray
    first: np.ndarray

    def find(self, pattern: str) -> Iterator[np.ndarray]:
        """Leaves of each match of a regular expression over the word, in order."""
        for match in re.finditer(pattern, self.word):
            yield self.at[match.start() : match.end()]

    def rows(self, leaves: np.ndarray) -> np.ndarray:
        """Rows of `Trace.device_work` that the given leaves launched."""
        parts = [self.row[self.first[leaf] : self.first[leaf + 1]] for leaf in leaves.tolist()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def measure_leaves(facts: Core) -> Leaves:
    """Leaves of a trace. Work inside compiled regions belongs to their calls and spells nothing; the compiler's own is no
    work of the program."""
    trace = facts.trace
    work = trace.device_work
    rows = np.flatnonzero(facts.in_steady_step[work] & (trace.links.operator >= 0))
    rows = rows[~inside_compilation(facts, trace.links.operator[rows])]
    if len(rows) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Leaves(nothing, nothing, "", nothing, nothing, np.zeros(1, np.int64))
    owner = trace.links.operator[rows]
    unique = distinct(owner, len(trace))
    operator = unique[np.lexsort((trace.start[unique], trace.lane[unique]))]
    leaf_of = np.empty(len(unique), dtype=np.int64)
    leaf_of[np.searchsorted(unique, operator)] = np.arange(len(operator))
    leaf = leaf_of[np.searchsorted(unique, owner)]
    order = np.argsort(leaf, kind="stable")
    first = np.searchsorted(leaf[order], np.arange(len(operator) + 1))
    time = np.bincount(leaf, weights=trace.duration[work[rows]], minlength=len(operator)).astype(np.int64)

    letter = np.full(len(trace.names), _OTHER, dtype="U1")
    for name, sign in _LETTERS.items():
        letter[trace.name_ids(name)] = sign
    spelled = letter[trace.name[operator]]
    step = trace.steps.of_event[operator]
    breaks = np.concatenate(([True], (np.diff(trace.lane[operator]) != 0) | (np.diff(step) != 0)))
    position = np.arange(len(operator)) + np.cumsum(breaks)
    word = np.full(len(operator) + int(breaks.sum()), _BREAK, dtype="U1")
    word[position] = spelled
    at = np.full(len(word), -1, dtype=np.int64)
    at[position] = np.arange(len(operator))
    return Leaves(operator, time, "".join(word.tolist()), at, rows[order], first)
