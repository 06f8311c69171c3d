"""Sums that a collector has so far -> what each context cost between one look and the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from lanewise.tree.slowing.looks.growing_forest import GrowingForest, RawThread

__all__ = ["Since", "SinceLast", "Source", "Sums"]

_COLUMNS = {"parent": np.uint32, "kind": np.uint8, "name": np.uint32, "forward": np.uint64}


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


class Since(NamedTuple):
    """What came between two looks, by node: ns of the host without waits for a processor, these waits, calls, and ns of the
    device; None where no device is looked at. Nodes that were new later are missing at the end."""

    host: np.ndarray
    waits: np.ndarray
    calls: np.ndarray
    device: np.ndarray | None


class SinceLast:
    """Remembers the last sums.

    Args:
        source: what the contexts are that are new. forest: learns them.
    """

    def __init__(self, source: Source, forest: GrowingForest) -> None:
        self._source, self._forest = source, forest
        self._before: dict[tuple[int, str], np.ndarray] = {}
        self._device_before: dict[tuple[int, int, int, int], int] = {}

    def of(self, sums: Sums) -> Since:
        """What came since the sums before these."""
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        if any(self._forest.nodes_of(index, len(ticks) // 8) is None for index, _, ticks, _ in sums.threads):
            self._learn()
        for index, calls, ticks, waits in sums.threads:
            since, waited = self._added(index, "ticks", ticks), self._added(index, "waits", waits)
            entered = self._added(index, "calls", calls)
            nodes = self._forest.nodes_of(index, len(since))
            if nodes is not None:  # else contexts that were made while we learned
                parts.append((nodes, since, waited, entered))
        leaves = [
            (node, ns)
            for leaf in sums.leaves
            if (ns := self._added_on_device(leaf)) > 0 and (node := self._forest.below(*leaf[:4])) >= 0
        ]
        host, waiting, entries = (np.zeros(len(self._forest)) for _ in range(3))
        for nodes, ticks, waits, entered in parts:
            host[nodes] += ticks
            waiting[nodes] += waits
            entries[nodes] += entered
        device = np.zeros(len(self._forest)) if sums.leaves else None
        if device is not None:
            for node, ns in leaves:
                device[node] += ns
        return Since(np.maximum(host - waiting, 0.0) * sums.ns_per_tick, waiting * sums.ns_per_tick, entries, device)

    def _added(self, index: int, what: str, raw: bytes) -> np.ndarray:
        """What has been added to a thread's sums since the last look; all of it where another thread took its number."""
        sums = np.frombuffer(raw, np.int64)
        before = self._before.get((index, what))
        self._before[index, what] = sums
        if before is None or len(before) > len(sums):
            return sums
        since = sums.copy()
        since[: len(before)] -= before
        return since if since.min(initial=0) >= 0 else sums

    def _added_on_device(self, leaf: tuple[Any, ...]) -> int:
        key, total = leaf[:4], int(leaf[6])
        new = total - self._device_before.get(key, 0)
        self._device_before[key] = total
        return new

    def _learn(self) -> None:
        """Contexts that are new, or those of threads that came in the place of others."""
        for one in self._source.contexts()["threads"]:
            columns = (np.frombuffer(one[name], kind) for name, kind in _COLUMNS.items())
            self._forest.learn(RawThread(int(one["index"]), *columns))
