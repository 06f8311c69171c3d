"""Speed on inputs that repeat: calls with inputs that are new each time, against the same number of calls with one of them.

A block of the timing gate repeats its inputs, so a result that is kept by their content would look fast there. Whether a
gain is one on repeated inputs only is a question like any other: two ratios with intervals, from calls of all arms in turns
and in the same state of caches.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lanewise.compare.statistics import estimate
from lanewise.fix.gate.inputs import renewed
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, copy_call, tensors_of

__all__ = ["FreshInputs", "Repeats", "only_for_seen_inputs"]

_MOST_LOST = 0.5
_LEAST_ROUNDS = 5
_LARGE = 1.5
_LEAST_CALLS, _MOST_CALLS, _BLOCK_S = 3, 16, 0.004
_MOST_BYTES = 1 << 27

# Of the whole process: what is new in one comparison must not have been seen in an earlier one.
_numbers = itertools.count()


class Repeats(NamedTuple):
    """By arm, one value per round: ns per call with new inputs, and with the last of these again and again."""

    fresh: dict[str, list[float]]
    seen: dict[str, list[float]]


class FreshInputs:
    """A few copies of a call, given other values before each block.

    Args:
        call: the recorded one. one: seconds that it takes. each: whether every call is waited for.
    """

    def __init__(self, subject: Subject, call: Call, one: float, *, each: bool = False) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(call))
        by_time, by_size = math.ceil(_BLOCK_S / max(one, 1e-9)), _MOST_BYTES // max(size, 1)
        self._subject, self._recorded, self._each = subject, call, each
        self._calls = [copy_call(call) for _ in range(max(1, min(_MOST_CALLS, max(_LEAST_CALLS, by_time), by_size)))]

    def block(self, repeats: Repeats, arm: str, warm: Call) -> Any:
        """Time a block of each kind for an arm, which is in place.

        Args:
            warm: a call to begin with, so that what is timed finds the arm's code in the caches.

        Returns:
            What it gave for `last`, the first time that it saw it.
        """
        for call in self._calls:
            renewed(call, self._recorded, next(_numbers))
        self._subject.run(warm)
        fresh, result = self._timed(self._calls)
        repeats.fresh[arm].append(fresh)
        repeats.seen[arm].append(self._timed(self._calls[-1:] * len(self._calls))[0])
        return result

    @property
    def last(self) -> Call:
        """The call whose result is known."""
        return self._calls[-1]

    def _timed(self, calls: Sequence[Call]) -> tuple[float, Any]:
        self._subject.wait()
        result: Any = None
        start = time.perf_counter_ns()
        for call in calls:
            result, _ = self._subject.run(call)
            if self._each:
                self._subject.wait()
        self._subject.wait()
        return (time.perf_counter_ns() - start) / len(calls), result


def only_for_seen_inputs(repeats: Repeats, before: str, after: str, *, gain: float) -> tuple[str, bool]:
    """What to say if an arm saves time only on inputs that it was just called with, and whether that is proven.

    Proven: on new inputs less than half of the time is saved that is saved on known ones, whatever end of the two 95 %
    intervals one takes. Not proven, but said too: nothing shows that it saves any on new inputs. A small gain may be lost
    in the noise of these few calls; a large one is not.

    Args:
        gain: time before over time after, in the blocks that repeat their inputs.
    """
    if not repeats.fresh.get(before):
        return "", False
    rounds = min(len(kind[arm]) for kind in repeats for arm in (before, after))
    doubt = "it is not proven to save time on inputs that are new"
    if rounds < _LEAST_ROUNDS:
        return (doubt if gain >= _LARGE else ""), False
    fresh, seen = (_ratio(kind, before, after, rounds) for kind in repeats)
    if seen.low > 1 and _saved(fresh.high) < _MOST_LOST * _saved(seen.low):
        return "it saves time only on inputs that it was called with before", True
    shown = fresh.low > 1 and _saved(fresh.ratio) >= _MOST_LOST * _saved(seen.ratio if seen.low > 1 else gain)
    lost = gain < _LARGE and fresh.high >= gain
    return ("" if shown or lost else doubt), False


def _ratio(kind: Mapping[str, list[float]], before: str, after: str, rounds: int) -> Any:
    arms = ([np.array([value]) for value in kind[arm][:rounds]] for arm in (before, after))
    return estimate(*arms, paired=True)


def _saved(ratio: float) -> float:
    """Share of the time."""
    return 1 - 1 / ratio
