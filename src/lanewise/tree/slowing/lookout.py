"""Looks at a collector's sums at the ends of steps: the history of the run, and what becomes slower."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from lanewise.trace.frames import is_library, parse_frame
from lanewise.tree.slowing.changes.sequential import REFERENCE
from lanewise.tree.slowing.changes.slowdowns import METRICS, Grown, Slowdowns
from lanewise.tree.slowing.looks.block import Part, usual_step
from lanewise.tree.slowing.looks.growing_forest import GrowingForest
from lanewise.tree.slowing.looks.processor_wait import CROWDED, ProcessorWait
from lanewise.tree.slowing.looks.sampling import Sampling
from lanewise.tree.slowing.looks.since_last import Since, SinceLast, Source, Sums
from lanewise.tree.slowing.slowdown import MOST_PERIODS, Period, Slowdown
from lanewise.tree.watching.collected import CollectedKind, module_names

__all__ = ["Lookout"]

_LOOKS = 4
"""Of a block. There is one after each step, so that a step that was held up is told from the others."""
_COST = 0.01
"""Of the run's time at most that looking may take: where steps are short, there is one after several of them."""
_BATCH = 4
"""Blocks that are worked through at once: right after a step none of our code is in the processor's caches."""
_SETTLES = 2
"""Looks' worth of steps that are left out after that, as then none of the program's is."""
_WARM = 6
"""Batches before it is chosen how often to look, and blocks are compared."""


class Lookout:
    """Finds what becomes slower.

    Args:
        source: what is looked at. frame_name: text of a function, `train.py(12): main`.
        told: is called with what was found. follow: look for what becomes slower, and not for the error of shares alone.
        sampled: a part of the steps is watched, so that the error of shares is asked for.

    Attributes:
        found: so far. blocks: how many there were. crowded: those that were left out as others had the processor.
    """

    def __init__(
        self,
        source: Source,
        frame_name: Callable[[CodeType], str],
        told: Callable[[Slowdown], None],
        *,
        follow: bool = True,
        sampled: bool = True,
    ) -> None:
        self.found: list[Slowdown] = []
        self._source, self._frame_name, self._told = source, frame_name, told
        self._forest = GrowingForest()
        self._slowdowns = Slowdowns(self._forest)
        self._follow = follow
        self._sampling = Sampling(self._forest) if sampled else None
        self._since = SinceLast(source, self._forest)
        self.blocks = self.crowded = 0
        self._processor = ProcessorWait()
        self._pending: list[_Look] = []
        self._batches = 0
        self._length = 1
        self._spent = 0
        self._costs_each: deque[float] = deque(maxlen=5)
        self._last: _Look | None = None
        self._ends: deque[_End] = deque(maxlen=_ENDS)
        self._reference: list[_End] = []
        self._periods: list[Period] = []
        self._joined = self._open = 1

    def begin_anew(self) -> None:
        """The process is another one than before, as after a profiler: what comes is compared with what comes first."""
        self._last = None
        self._pending = []
        self._ends.clear()
        self._reference = []
        self._slowdowns = Slowdowns(self._forest)

    def close(self) -> None:
        """Nothing more will be looked at."""
        self._processor.close()

    @property
    def sampling_error(self) -> float:
        """By how much shares of host time may differ from those of all steps; see `Sampling.error`."""
        return self._sampling.error() if self._sampling is not None else -1.0

    @property
    def history(self) -> tuple[Period, ...]:
        """The run so far, in fewer than twice `MOST_PERIODS` stretches of equal numbers of batches."""
        return tuple(self._periods if self._open == self._joined else self._periods[:-1])

    def look(self, seen: int, watched: int) -> int:
        """A step ended: the number of watched steps at which to look again.

        Args:
            seen: steps that went by. watched: how many of them were.
        """
        # What others take of the processor meanwhile is no cost of looking.
        begin = time.thread_time_ns()
        self._pending.append(_Look(time.perf_counter_ns(), seen, watched, self._processor.ns(), self._source.sums()))
        self._spent += time.thread_time_ns() - begin
        if len(self._pending) == 1 + _BATCH * _LOOKS:
            begin = time.thread_time_ns()
            pending, self._pending = self._pending, []
            self._work_through(pending, seen)
            self._spent += time.thread_time_ns() - begin
            self._pace(pending)
            return watched + _SETTLES * self._length
        return watched + self._length

    def _work_through(self, looks: Sequence[_Look], now: int) -> None:
        """A batch: steps that follow the one before are slower for it, so that the first look only tells where its blocks
        begin."""
        begin, last = looks[0], self._last
        since = self._since.of(begin.sums)
        entered = int(since.calls.sum())
        if last is not None:
            self._sample(since)
        for at in range(1, len(looks), _LOOKS):
            entered += self._take(begin, looks[at : at + _LOOKS], now)
            begin = looks[at + _LOOKS - 1]
        if last is not None:
            self._remember(
                Period(begin.seen - last.seen, begin.time - last.time, begin.watched - last.watched, entered)
            )
        self._last = begin

    def _take(self, begin: _Look, looks: Sequence[_Look], now: int) -> int:
        """A block: how often contexts were entered in it."""
        parts: list[Part] = []
        for last, look in pairwise((begin, *looks)):
            parts.append(Part(look.watched - last.watched, self._since.of(look.sums)))
            self._sample(parts[-1].since)
        end = looks[-1]
        waits = sum(float(part.since.waits.sum()) for part in parts)
        if self._follow and self._batches >= _WARM and not self._crowded(begin, end, waits):
            costs, calls = usual_step(parts, len(self._forest))
            ended = _End(end.seen, end.watched, {index: calls for index, calls, _, _ in end.sums.threads})
            self._block(costs, calls, ended, now)
        return sum(int(part.since.calls.sum()) for part in parts)

    def _sample(self, since: Since) -> None:
        if self._sampling is not None:
            self._sampling.add(since.host + since.waits)

    def _crowded(self, last: _Look, look: _Look, known: float) -> bool:
        """Whether other programs took the processor away, by more than it is known in which places: what a place took
        between two looks then says nothing of it."""
        self.blocks += 1
        crowded = look.waited - last.waited - known > CROWDED * (look.time - last.time)
        self.crowded += crowded
        return crowded

    def _pace(self, looks: Sequence[_Look]) -> None:
        """Seldom enough; only ever more seldom, as a reference of shorter blocks has more noise, not less."""
        self._batches += 1
        self._costs_each.append(self._spent / len(looks))
        self._spent = 0
        steps = looks[-1].watched - looks[0].watched
        took = (looks[-1].time - looks[0].time) / max(1, steps)
        # In the first batch contexts are learned, and the code itself is new; any of them may be interrupted.
        needed = math.ceil(float(np.median(self._costs_each)) / (_COST * max(took, 1.0)))
        if self._batches == _WARM or (self._batches > _WARM and needed > 2 * self._length):
            self._length = max(self._length, needed)

    def _remember(self, period: Period) -> None:
        """Room for all: where there is none left, two become one."""
        if self._periods and self._open < self._joined:
            self._periods[-1] = _sum([self._periods[-1], period])
            self._open += 1
        else:
            self._periods.append(period)
            self._open = 1
        if len(self._periods) >= 2 * MOST_PERIODS and self._open == self._joined:
            self._periods = [_sum(self._periods[at : at + 2]) for at in range(0, len(self._periods), 2)]
            self._joined *= 2
            self._open = self._joined

    # -- what was found ------------------------------------------------------------------------------------------------

    def _block(self, costs: Mapping[str, np.ndarray], calls: np.ndarray, end: _End, now: int) -> None:
        self._ends.append(end)
        if self._slowdowns.blocks in (0, REFERENCE - 1):
            self._reference.append(end)
        for grown in self._slowdowns.block(costs, calls):
            back = self._slowdowns.blocks - grown.since
            begin = self._ends[max(0, len(self._ends) - 1 - back)]
            found = self._named(grown, begin, end, now)
            self.found.append(found)
            self._told(found)

    def _calls_per_step(self, node: int, begin: _End, end: _End) -> float:
        """How often a context was entered between two moments."""
        calls = 0
        for index, late in end.calls.items():
            nodes, early = self._forest.nodes_of(index, len(late) // 8), begin.calls.get(index, b"")
            if nodes is None:
                continue
            rows = np.flatnonzero(nodes == node)
            now = np.frombuffer(late, np.int64)[rows]
            then = np.frombuffer(early, np.int64)
            calls += int(now.sum()) - int(then[rows[rows < len(then)]].sum())
        return max(0, calls) / max(1, end.watched - begin.watched)

    def _named(self, grown: Grown, begin: _End, end: _End, now: int) -> Slowdown:
        contexts = self._source.contexts()
        names: list[str] = []
        file, line, function = "", 0, ""
        node = grown.node
        while node >= 0:
            kind = self._forest.kind[node]
            text, own = self._text(contexts, node)
            if kind == CollectedKind.FRAME:
                frame = parse_frame(text)
                if own and not file:
                    file, line, function = frame.file, frame.line, frame.function
                text = frame.function or text
            if node == grown.node or kind == CollectedKind.MODULE or own:
                names.insert(0, text)
            node = self._forest.parent[node]
        return Slowdown(
            path=tuple(names),
            file=file,
            line=line,
            function=function,
            what=METRICS[grown.metric],
            alone=grown.alone,
            before=round(grown.before, 1),
            after=round(grown.after, 1),
            calls_before=round(self._calls_per_step(grown.node, self._reference[0], self._reference[-1]), 3),
            calls_after=round(self._calls_per_step(grown.node, begin, end), 3),
            since=begin.seen,
            at=now,
        )

    def _text(self, contexts: Mapping[str, Any], node: int) -> tuple[str, bool]:
        """Name of a node, and whether it is a function of the user's."""
        kind, name = self._forest.kind[node], self._forest.name[node]
        if kind == CollectedKind.FRAME:
            text = self._frame_name(contexts["sites"][name][0])
            return text, not is_library(parse_frame(text).file)
        text = str(contexts["names"][name])
        if kind == CollectedKind.MODULE:
            ((path, _),) = module_names([text])
            return path, False
        return text, False


class _Look(NamedTuple):
    """One look: when (ns), steps that went by, those watched, ns waited for a processor so far, and what there was."""

    time: int
    seen: int
    watched: int
    waited: int
    sums: Sums


class _End(NamedTuple):
    """The end of a block: steps that went by, those watched, and calls of each thread's contexts so far."""

    seen: int
    watched: int
    calls: dict[int, bytes]


_ENDS = 40
"""Ends that are kept: a change that began earlier is said to have begun there."""


def _sum(parts: Sequence[Period]) -> Period:
    return Period(
        sum(one.steps for one in parts),
        sum(one.ns for one in parts),
        sum(one.watched for one in parts),
        sum(one.calls for one in parts),
    )
