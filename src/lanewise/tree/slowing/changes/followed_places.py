"""The places of a program that matter, followed from a reference on: what has certainly changed, and what explains it.

What the machine's speed does to each place is taken out of each block first (`machine_speed`). Then every place that
matters, with what it calls and by itself, is a series of its own (`sequential`). A machine that is busier than in the
reference, in a new way, makes no two places slower by the same: what is certain to have gone up is only said if it
stands out from what the other places have done meanwhile, beyond what they always differ by, and if the step feels it.
Where a place also calls more than it did (`more_calls`), no machine is the cause: then it is enough that it takes longer
than the others do. What explains a change is looked for below the place that it is seen at.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lanewise.trace.groups import mask_of, weighted_median
from lanewise.tree.slowing.changes.machine_speed import FEW, MachineSpeed
from lanewise.tree.slowing.changes.more_calls import MoreCalls
from lanewise.tree.slowing.changes.sequential import SIGMA, Evidence, usual_of
from lanewise.tree.slowing.looks.growing_forest import GrowingForest, padded
from lanewise.tree.watching.collected import CollectedKind

__all__ = ["Block", "FollowedPlaces", "Grown"]

_WORTH = 0.02
"""Of the step: less is not followed."""
_SERIES = 256
_CHAIN = 0.98
_EXPLAINS = 0.7
"""Of what a place has become slower by, from which on one inside of it is the one to name."""
_DIFFUSE = 0.5
"""Of the step: a place that holds more, with no place inside of it that explains its change, is no place to look at."""
_SAYS = 0.001
"""Of the step: less says nothing about how fast the machine is."""
_LOUDEST = 3
"""Times what an ordinary place says."""
_BUSY = math.log(1.5)
"""A block in which the middle of the program takes so much longer, or less, says nothing."""
_SPIKE = 1.5
"""Of what a context usually takes: more in one block is an interruption, and cut off there."""
_FOLLOWS = 1.25
"""By so much what it usually takes is corrected with each block, so that what stays becomes usual."""
_INTERRUPTED = 1.15
"""A block in which interruptions are so much more of the time than they were in the reference says nothing."""
_RECENT = 32
_CHANGED = 0.04
"""Beyond what the other places have, that a place must have changed by; half of that where it calls more than it did."""
_STANDS_OUT = 7.0
"""Times the spread of the other places' changes, beyond that of the reference, that a place must have changed by."""
_FURTHER, _TENTH = 3.0, 0.1
"""And times what the tenth of its kind has changed by, beyond that of the reference, that has changed most: code that runs
once a step feels a machine that others use far more than the middle does, as nothing of it is in the caches."""
_NOTICED = 0.004
"""Of the step: a place that takes so much longer, or less, is not worth an alert. Places of some microseconds move by that
much, and stay there, where nothing has changed but what else is in the caches and where memory lies."""
_NOTICED_WITH_CALLS = 0.001
"""The same of a place that calls more than it did, which is no doubt."""
_SPAN = 16
"""Blocks over which places' changes are taken, in the reference."""
_PYTHON = (CollectedKind.FRAME, CollectedKind.MODULE, CollectedKind.SCOPE)
"""Contexts whose own time is spent in Python: where others use the caches, too, it becomes longer than that of operators by
several times as much."""

Block = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Grown:
    """A place that has become slower; as `Slowdown`, with the node instead of names, and blocks instead of steps."""

    node: int
    metric: str
    alone: bool
    before: float
    after: float
    since: int


def _log(values: np.ndarray) -> np.ndarray:
    """Logarithms; what took nothing in a block is a tenth."""
    return np.log(np.maximum(values, 0.1))


class _Apart(NamedTuple):
    """What places have changed by, as factors, of operators and of Python: the middle; how far all are spread around that;
    and how far beyond it the tenth lies that has changed most."""

    middle: np.ndarray
    spread: float
    furthest: np.ndarray


class FollowedPlaces:
    """The places that matter in one metric.

    Args:
        first: blocks of the reference, the last of which is the one numbered `begun`.

    Attributes:
        count: how many. busy: whether the last block said nothing. new: whether anything became certain in it.
    """

    def __init__(self, forest: GrowingForest, metric: str, first: list[tuple[Block, np.ndarray]], begun: int) -> None:
        self.busy = self.new = False
        self._forest, self._metric = forest, metric
        size = len(forest)
        own = np.stack([padded(block[metric], size) for block, _ in first])
        self._steady = np.empty(0, np.int64)
        self._python = np.isin(np.array(forest.kind), _PYTHON)
        self._own = self._usual = np.median(own, axis=0)
        cut = np.minimum(own, _SPIKE * self._usual)
        self._interrupted = float(np.median(own.sum(axis=1) / np.maximum(cut.sum(axis=1), 1.0)))
        own = cut
        self._weigh()
        speed = MachineSpeed(self._level, self._weight, own[:, self._steady])
        self._own = np.median(own / np.exp(speed.first)[:, None], axis=0)
        self._weigh()
        self._speed = MachineSpeed(self._level, self._weight, own[:, self._steady])
        own = self._at_usual_speed(own, self._speed.first[:, None])
        self._own = np.median(own, axis=0)
        self._level = self._own[self._steady]
        spans = np.array_split(own[:, self._steady], len(own) // _SPAN)
        everywhere = np.ones(len(self._steady), dtype=bool)
        usually = [self._apart(span, everywhere) for span in spans]
        self._usual_spread = float(np.median([one.spread for one in usually]))
        self._usually_furthest = np.median([one.furthest for one in usually], axis=0)
        whole = forest.inclusive(own)
        self._whole = np.median(whole, axis=0)
        self._node, self._alone = self._worth()
        self.count = len(self._node)
        if self.count:
            values = np.where(self._alone, own[:, self._node], whole[:, self._node])
            self._reference = np.median(values, axis=0)
            self._evidence = Evidence(usual_of(_log(values / self._reference)))
            calls = np.stack([padded(calls, size) for _, calls in first])
            self._more_calls = MoreCalls(forest.inclusive(calls, self._node))
        self._recent: deque[tuple[int, np.ndarray]] = deque(maxlen=_RECENT)
        self._certain = self._calls_more = np.zeros(self.count, dtype=bool)
        self._unfelt = np.zeros(self.count, dtype=bool)
        self._begun = begun

    @property
    def suspected(self) -> bool:
        """Whether anything speaks for a change."""
        return bool(((self._evidence.suspected() | (self._more_calls.streak > 0)) & ~self._unfelt).any())

    @property
    def unexplained(self) -> bool:
        """Whether anything is certain that has not been said, but what the step does not feel."""
        return bool(((self._certain | self._calls_more) & ~self._unfelt).any())

    def _worth(self) -> tuple[np.ndarray, np.ndarray]:
        """Which nodes are followed, and whether by themselves; a place that only leads to another one is not."""
        step = float(self._own.sum())
        if step <= 0:
            return np.empty(0, np.int64), np.empty(0, bool)
        parent = np.array(self._forest.parent, dtype=np.int64)
        largest = np.zeros(len(parent))
        inside = parent >= 0
        np.maximum.at(largest, parent[inside], self._whole[inside])
        matters = self._whole >= _WORTH * step
        whole = np.flatnonzero(matters & (largest < _CHAIN * self._whole))
        alone = np.flatnonzero((self._own >= _WORTH * step) & (largest > (1 - _CHAIN) * self._whole))
        node = np.concatenate((whole, alone))
        by_itself = np.concatenate((np.zeros(len(whole), bool), np.ones(len(alone), bool)))
        cost = np.where(by_itself, self._own[node], self._whole[node])
        # A median may be zero where most blocks have nothing.
        kept = np.argsort(-cost, kind="stable")[:_SERIES]
        kept = kept[cost[kept] > 0]
        return node[kept], by_itself[kept]

    def _weigh(self) -> None:
        """Which contexts tell how fast the machine is, and how much each of them says."""
        total = float(self._own.sum())
        self._steady = np.flatnonzero(self._own > _SAYS * total)
        self._level = self._own[self._steady]
        weight = np.sqrt(self._level)
        # A place that dominates the step would hide its own change.
        self._weight = np.minimum(weight, _LOUDEST * np.median(weight)) if len(weight) else weight

    def _at_usual_speed(self, own: np.ndarray, speed: np.ndarray | float) -> np.ndarray:
        """Blocks as they would be on the machine of the reference; speed is a logarithm, of each.

        What places feel of it was learned at the speeds of the reference: of anything beyond these each is taken to feel
        all.
        """
        exponent = np.ones(own.shape[-1])
        exponent[self._steady] = self._speed.exponent
        known = np.clip(speed, self._speed.first.min(), self._speed.first.max())
        return own / np.exp(known * exponent + (speed - known))

    def _apart(self, some: np.ndarray, which: np.ndarray) -> _Apart:
        """What some steady places take in blocks, over their levels."""
        if not which.any():
            return _Apart(np.ones(2), 0.0, np.zeros(2))
        changes = np.median(some[:, which], axis=0) / self._level[which]
        weight, python = self._weight[which], self._python[self._steady][which]
        of_kind = [python == kind for kind in (False, True)]
        of_kind = [kind if int(kind.sum()) >= FEW else np.ones(len(kind), bool) for kind in of_kind]
        middle = np.array([weighted_median(changes[kind], weight[kind]) for kind in of_kind])
        spread = SIGMA * weighted_median(np.abs(changes - middle[python.astype(int)]), weight)
        furthest = np.array([np.quantile(changes[kind], 1 - _TENTH) for kind in of_kind]) - middle
        return _Apart(middle, spread, np.maximum(furthest, 0.0))

    def _uninterrupted(self, own: np.ndarray) -> tuple[np.ndarray, bool]:
        """A block without its interruptions, and whether they are most of what is unusual in it."""
        if len(self._usual) < len(own):
            # What is new is usual from its first block on, and corrected as the rest.
            self._usual = np.concatenate((self._usual, own[len(self._usual) :]))
        new = (self._usual == 0) & (own > 0)
        self._usual[new] = own[new]
        cut = np.minimum(own, _SPIKE * self._usual)
        self._usual = np.where(own > self._usual, self._usual * _FOLLOWS, self._usual / _FOLLOWS)
        return cut, float(own.sum()) > _INTERRUPTED * self._interrupted * float(cut.sum())

    def block(self, sums: Block, calls: np.ndarray, number: int) -> bool:
        """Whether anything is certain, or calls more than it did, after one more block."""
        own, interrupted = self._uninterrupted(sums[self._metric])
        speed = self._speed.of(own[self._steady])
        self.busy, self.new = interrupted or abs(speed) > _BUSY, False
        if self.busy:
            return False
        own = self._at_usual_speed(own, speed)
        self._recent.append((number, own))
        values = np.where(self._alone, own[self._node], self._forest.inclusive(own, self._node))
        before = self._certain | self._calls_more
        self._certain = self._evidence.block(_log(values / self._reference))
        self._calls_more = self._more_calls.block(self._forest.inclusive(calls, self._node))
        certain = self._certain | self._calls_more
        self._unfelt &= certain
        self.new = bool((certain & ~before).any())
        return bool(certain.any())

    def grown(self) -> list[Grown]:
        """What explains that which takes longer, dearest first; followed from its new level on."""
        size = len(self._forest)
        own_before, whole_before = padded(self._own, size), padded(self._whole, size)
        found: dict[tuple[int, bool], Grown] = {}
        settled = np.zeros(self.count, dtype=bool)
        for row in np.flatnonzero(self._certain | self._calls_more).tolist():
            if settled[row]:
                continue
            # Blocks of this metric: some were left out, so that the latest are counted from the end.
            if self._calls_more[row]:
                streak = int(self._more_calls.streak[row])
            else:
                streak = self._evidence.blocks - int(self._evidence.since[row])
            latest = list(self._recent)[-max(4, min(streak, _RECENT)) :]
            stacked = np.stack([padded(block, size) for _, block in latest])
            more = self._beyond_others(row, stacked)
            self._unfelt[row] = 0 < more <= (_NOTICED_WITH_CALLS if self._calls_more[row] else _NOTICED)
            if more <= 0 or self._unfelt[row]:
                continue
            own, whole = np.median(stacked, axis=0), np.median(self._forest.inclusive(stacked), axis=0)
            node, alone, diffuse = int(self._node[row]), bool(self._alone[row]), False
            if not alone:
                node, alone, diffuse = self._explaining(node, whole - whole_before, own - own_before)
            before, after = (own_before, own) if alone else (whole_before, whole)
            settled |= self._settle(node, own, whole, row)
            if diffuse and before[node] > _DIFFUSE * own_before.sum():
                continue
            since = latest[0][0] - 1 - max(0, streak - len(latest))
            found.setdefault(
                (node, alone),
                Grown(node, self._metric, alone, float(before[node]), float(after[node]), max(self._begun, since)),
            )
        return sorted(found.values(), key=lambda one: one.before - one.after)

    def _beyond_others(self, row: int, blocks: np.ndarray) -> float:
        """By which part of the step a series has gone up beyond the places outside of it; 0 where that is not clear in some
        blocks and in both halves. Clear is less where it calls more than it did."""
        node, alone = int(self._node[row]), bool(self._alone[row])
        inside = self._forest.inside(node)[self._steady] if not alone else self._steady == node
        few = int((~inside).sum()) < FEW
        others = np.ones(len(inside), dtype=bool) if few else ~inside
        kinds = self._kinds_of(node, alone)

        def beyond(some: np.ndarray) -> tuple[float, _Apart]:
            """By how much it has gone up beyond what the others of its kinds have, and what these have."""
            apart = self._apart(some[:, self._steady], others)
            value = np.median(some[:, node] if alone else self._forest.inclusive(some, np.array([node])))
            return float(value) / float(self._reference[row]) - float(kinds @ apart.middle), apart

        by, apart = beyond(blocks)
        least = _CHANGED
        new = _STANDS_OUT * math.sqrt(max(0.0, apart.spread**2 - self._usual_spread**2))
        if not few:
            furthest = np.sqrt(np.maximum(apart.furthest**2 - self._usually_furthest**2, 0.0))
            new = max(new, _FURTHER * float(kinds @ furthest))
        if self._calls_more[row]:
            least, new = _CHANGED / 2, 0.0
        clear = by > max(least, new) and all(beyond(half)[0] > least / 2 for half in np.array_split(blocks, 2))
        return by * float(self._reference[row]) / float(self._own.sum()) if clear else 0.0

    def _kinds_of(self, node: int, alone: bool) -> np.ndarray:
        """Which part of a place's usual time is spent in operators, and which in Python."""
        within = np.arange(len(self._own)) == node if alone else self._forest.inside(node)[: len(self._own)]
        python = float(self._own[within & self._python].sum()) / max(float(self._own[within].sum()), 1e-9)
        return np.array([1 - python, python])

    def _explaining(self, node: int, whole: np.ndarray, own: np.ndarray) -> tuple[int, bool, bool]:
        """The innermost place below a node that holds most of what it has become slower by; whether that is its own, beside
        what it calls; and whether nothing holds most of it."""
        while True:
            excess = whole[node]
            if own[node] >= _EXPLAINS * excess:
                return node, bool(self._forest.children(node)), False
            inner = [child for child in self._forest.children(node) if whole[child] >= _EXPLAINS * excess]
            if not inner:
                return node, False, True
            node = inner[0]

    def _settle(self, node: int, own: np.ndarray, whole: np.ndarray, row: int) -> np.ndarray:
        """What has been reported, and what shows it as well, is followed from its new level on: which series those are."""
        related = mask_of(self.count, [row])
        above = {node}
        at = node
        while (at := self._forest.parent[at]) >= 0:
            above.add(at)
        related |= np.isin(self._node, list(above)) | self._evidence.suspected()
        level = np.where(self._alone, own[self._node], whole[self._node])
        self._reference = np.where(related & (level > 0), np.maximum(level, self._reference), self._reference)
        self._evidence.forget(related)
        self._more_calls.forget(related)
        return related
