"""Looks at a collector's sums at the ends of steps: the history of the run, and what becomes slower."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple, Protocol

import numpy as np

from lanewise.trace.frames import is_library, parse_frame
from lanewise.tree.slowing.growing_forest import GrowingForest, RawThread
from lanewise.tree.slowing.processor_wait import CROWDED, ProcessorWait
from lanewise.tree.slowing.sampling import Sampling
from lanewise.tree.slowing.sequential import REFERENCE
from lanewise.tree.slowing.slowdown import MOST_PERIODS, Period, Slowdown
from lanewise.tree.slowing.slowdowns import METRICS, Grown, Slowdowns
from lanewise.tree.watching.collected import CollectedKind, module_names

__all__ = ["Lookout", "Source", "Sums"]

_BLOCK = 4
"""Steps of a block at least."""
_COST = 0.01
"""Of the run's time at most that looking may take: where steps are short, blocks are longer."""
_BATCH = 4
"""Blocks that are worked through at once: right after a step none of our code is in the processor's caches."""
_WARM = 6
"""Batches before the length of blocks is chosen and blocks are compared."""


class Sums(Protocol):
    """What contexts have cost so far.

    Attributes:
        threads: index, calls (uint64 each), ticks (the same) of each thread's contexts, and the ticks of them in which the
            thread waited for a processor, as far as that is known.
        leaves: device work, as `CollectedLeaf`.
        ns_per_tick: what a tick is, ns.
    """

    @property
    def threads(self) -> Sequence[tuple[int, bytes, bytes, bytes]]: ...
    @property
    def leaves(self) -> Sequence[tuple[Any, ...]]: ...
    @property
    def ns_per_tick(self) -> float: ...


class Source(Protocol):
    """Where the sums come from."""

    def sums(self) -> Sums:
        """What there is now; cheap."""
        ...

    def contexts(self) -> Mapping[str, Any]:
        """What the contexts are: columns of `threads`, `names` and `sites`."""
        ...


class Lookout:
    """Finds what becomes slower.

    Args:
        source: what is looked at. frame_name: text of a function, `train.py(12): main`.
        told: is called with what was found. follow: look for what becomes slower, and not for the error of shares alone.

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
    ) -> None:
        self.found: list[Slowdown] = []
        self._source, self._frame_name, self._told = source, frame_name, told
        self._forest = GrowingForest()
        self._slowdowns = Slowdowns(self._forest)
        self._follow = follow
        self._sampling = Sampling(self._forest)
        self._before: dict[tuple[int, str], np.ndarray] = {}
        self._device_before: dict[tuple[int, int, int, int], int] = {}
        self.blocks = self.crowded = 0
        self._processor = ProcessorWait()
        self._pending: list[_Look] = []
        self._batches = 0
        self._length = _BLOCK
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
        return self._sampling.error()

    @property
    def history(self) -> tuple[Period, ...]:
        """The run so far, in fewer than twice `MOST_PERIODS` stretches of equal numbers of looks."""
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
        if len(self._pending) == _BATCH:
            begin = time.thread_time_ns()
            pending, self._pending = self._pending, []
            for one in pending:
                self._take(one, seen)
            self._spent += time.thread_time_ns() - begin
            self._pace(pending)
        return watched + self._length

    def _take(self, look: _Look, now: int) -> None:
        costs, waits, calls = self._since_last(look.sums)
        last, self._last = self._last, look
        if last is None or look.watched <= last.watched:
            return
        steps = look.watched - last.watched
        self._remember(Period(look.seen - last.seen, look.time - last.time, steps, int(calls.sum())))
        self._sampling.add(costs["host"])
        if self._follow and self._batches >= _WARM and not self._crowded(last, look, float(waits.sum())):
            end = _End(look.seen, look.watched, {index: calls for index, calls, _, _ in look.sums.threads})
            costs["host"] = np.maximum(costs["host"] - waits, 0.0)
            self._block({name: values / steps for name, values in costs.items()}, calls / steps, end, now)

    def _crowded(self, last: _Look, look: _Look, known: float) -> bool:
        """Whether other programs took the processor away, by more than it is known in which places: what a place took
        between two looks then says nothing of it."""
        self.blocks += 1
        crowded = look.waited - last.waited - known > CROWDED * (look.time - last.time)
        self.crowded += crowded
        return crowded

    def _pace(self, looks: Sequence[_Look]) -> None:
        """Long enough blocks; they only ever get longer, as a reference of shorter ones has more noise, not less."""
        self._batches += 1
        self._costs_each.append(self._spent / _BATCH)
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

    # -- sums --------------------------------------------------------------------------------------------------------

    def _since_last(self, sums: Sums) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """What came since the last look, by node: ns, what of the host's was waiting for a processor, and calls."""
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        if any(self._forest.nodes_of(index, len(ticks) // 8) is None for index, _, ticks, _ in sums.threads):
            self._learn()
        for index, calls, ticks, waits in sums.threads:
            since, waited = self._since(index, "ticks", ticks), self._since(index, "waits", waits)
            entered = self._since(index, "calls", calls)
            nodes = self._forest.nodes_of(index, len(since))
            if nodes is not None:  # else contexts that were made while we learned
                parts.append((nodes, since, waited, entered))
        device = [
            (node, ns)
            for leaf in sums.leaves
            if (ns := self._device_since(leaf)) > 0 and (node := self._forest.below(*leaf[:4])) >= 0
        ]
        host, waiting, entries = (np.zeros(len(self._forest)) for _ in range(3))
        for nodes, ticks, waits, entered in parts:
            host[nodes] += ticks
            waiting[nodes] += waits
            entries[nodes] += entered
        costs = {"host": host * sums.ns_per_tick}
        if sums.leaves:
            costs["device"] = np.zeros(len(self._forest))
            for node, ns in device:
                costs["device"][node] += ns
        return costs, waiting * sums.ns_per_tick, entries

    def _since(self, index: int, what: str, raw: bytes) -> np.ndarray:
        """What has been added to a thread's sums since the last look; all of it where another thread took its number."""
        sums = np.frombuffer(raw, np.int64)
        before = self._before.get((index, what))
        self._before[index, what] = sums
        if before is None or len(before) > len(sums):
            return sums
        since = sums.copy()
        since[: len(before)] -= before
        return since if since.min(initial=0) >= 0 else sums

    def _learn(self) -> None:
        """Contexts that are new, or those of threads that came in the place of others."""
        for one in self._source.contexts()["threads"]:
            columns = (np.frombuffer(one[name], kind) for name, kind in _COLUMNS.items())
            self._forest.learn(RawThread(int(one["index"]), *columns))

    def _device_since(self, leaf: tuple[Any, ...]) -> int:
        key, total = leaf[:4], int(leaf[6])
        new = total - self._device_before.get(key, 0)
        self._device_before[key] = total
        return new

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

_COLUMNS = {"parent": np.uint32, "kind": np.uint8, "name": np.uint32, "forward": np.uint64}


def _sum(parts: Sequence[Period]) -> Period:
    return Period(
        sum(one.steps for one in parts),
        sum(one.ns for one in parts),
        sum(one.watched for one in parts),
        sum(one.calls for one in parts),
    )
