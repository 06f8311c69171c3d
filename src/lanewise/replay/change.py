"""Changes: small edits of a step that can be added up, in terms of recorded events.

    one_launch(events)         the host's work of these goes, what they launch stays: a replayed graph, compiled code
    cheaper(events, keep)      the host's work of these shrinks to a share, what they launch stays
    cut(start, end)            the host does nothing in these stretches of time any more, what it launched there stays
    shorten(events, to_ns)     device work takes less time
    scale(events, by)          device work takes `by` times as long: another card, another type, another batch
    drop_wait(events)          calls no longer wait for the device
    move(events)               device work runs on a stream of its own, beside the rest
    overlap(events)            host work is done by another thread, beside the rest
    pace(share)                all that the host does takes a share of its time
    add(host_ns, device_ns, beside_ns)    work that the fix itself needs, per step

`lanewise.diagnose.what_if.remedies` has those that need to know what belongs together (`remove`, `fuse`, `rescale`). A
change says nothing about time saved: `apply` makes it, and `simulate` tells what the step is then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "Change",
    "Events",
    "add",
    "cheaper",
    "cut",
    "drop_wait",
    "move",
    "one_launch",
    "overlap",
    "pace",
    "scale",
    "shorten",
]

Events = np.ndarray | Sequence[int]


def _none() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Change:
    """An edit of the step, mostly in event ids. Changes are added with `+`: what two of them take away goes once.

    Attributes:
        gone: host rows that are no longer executed, with what they launch and wait for; device work that is not done.
        cheaper, keep: host rows that take only a share of their time, while what they launch stays.
        cut_start, cut_end: stretches of time in which the host has nothing to do any more, ns; what it launched stays.
        unwaited: calls that no longer wait.
        shorter, shorter_ns: device work, and what it takes instead, ns.
        scaled, scaled_by: device work, and how many times as long it takes; several factors of one are multiplied.
        apart: device work on a stream of its own.
        aside: host rows done by another thread.
        nodes: device work that follows what is before it as the nodes of a graph do, without the pause of a launch.
        host_ns, device_ns: work added per step. beside_ns: work per step of one more thread.
        host_share: what all of the host's work takes, as a share of its time.
    """

    gone: np.ndarray = field(default_factory=_none)
    cheaper: np.ndarray = field(default_factory=_none)
    keep: np.ndarray = field(default_factory=lambda: np.empty(0))
    cut_start: np.ndarray = field(default_factory=_none)
    cut_end: np.ndarray = field(default_factory=_none)
    unwaited: np.ndarray = field(default_factory=_none)
    shorter: np.ndarray = field(default_factory=_none)
    shorter_ns: np.ndarray = field(default_factory=lambda: np.empty(0))
    scaled: np.ndarray = field(default_factory=_none)
    scaled_by: np.ndarray = field(default_factory=lambda: np.empty(0))
    apart: np.ndarray = field(default_factory=_none)
    aside: np.ndarray = field(default_factory=_none)
    nodes: np.ndarray = field(default_factory=_none)
    host_ns: float = 0.0
    device_ns: float = 0.0
    beside_ns: float = 0.0
    host_share: float = 1.0

    def __add__(self, other: Change) -> Change:
        def both(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
            return np.concatenate((mine, theirs)) if len(theirs) else mine

        return Change(
            gone=both(self.gone, other.gone),
            cheaper=both(self.cheaper, other.cheaper),
            keep=both(self.keep, other.keep),
            cut_start=both(self.cut_start, other.cut_start),
            cut_end=both(self.cut_end, other.cut_end),
            unwaited=both(self.unwaited, other.unwaited),
            shorter=both(self.shorter, other.shorter),
            shorter_ns=both(self.shorter_ns, other.shorter_ns),
            scaled=both(self.scaled, other.scaled),
            scaled_by=both(self.scaled_by, other.scaled_by),
            apart=both(self.apart, other.apart),
            aside=both(self.aside, other.aside),
            nodes=both(self.nodes, other.nodes),
            host_ns=self.host_ns + other.host_ns,
            device_ns=self.device_ns + other.device_ns,
            beside_ns=self.beside_ns + other.beside_ns,
            host_share=self.host_share * other.host_share,
        )


def one_launch(events: Events, *, host_ns: float = 10_000.0) -> Change:
    """The host's work of these rows is replaced by one call per step of `host_ns`; the device does the same as before."""
    return cheaper(events, 0.0) + add(host_ns=host_ns)


def cheaper(events: Events, keep: float | np.ndarray) -> Change:
    """The host's work of these rows takes only a share of its time (one for all, or one for each)."""
    events = _ids(events)
    return Change(cheaper=events, keep=np.broadcast_to(np.asarray(keep, dtype=np.float64), events.shape))


def cut(start: Events, end: Events) -> Change:
    """The host has nothing to do in these stretches of time, ns."""
    return Change(cut_start=_ids(start), cut_end=_ids(end))


def shorten(events: Events, to_ns: float | np.ndarray | Sequence[float]) -> Change:
    """Device work takes at most `to_ns` (one value, or one for each)."""
    events = _ids(events)
    return Change(shorter=events, shorter_ns=np.broadcast_to(np.asarray(to_ns, dtype=np.float64), events.shape))


def scale(events: Events, by: float | np.ndarray) -> Change:
    """Device work takes `by` times as long (one factor for all, or one for each), whatever else shortens it."""
    events = _ids(events)
    return Change(scaled=events, scaled_by=np.broadcast_to(np.asarray(by, dtype=np.float64), events.shape))


def drop_wait(events: Events) -> Change:
    """Calls that return at once instead of waiting for the device."""
    return Change(unwaited=_ids(events))


def move(events: Events) -> Change:
    """Device work on a stream of its own: nothing waits for it within the step (a prefetch, an overlapped collective)."""
    return Change(apart=_ids(events))


def overlap(events: Events) -> Change:
    """Host work done by another thread while this one goes on; a step takes at least what the other has to do."""
    return Change(aside=_ids(events))


def add(*, host_ns: float = 0.0, device_ns: float = 0.0, beside_ns: float = 0.0) -> Change:
    """Work that is new, per step; `beside_ns` is done by another host thread, beside the rest."""
    return Change(host_ns=host_ns, device_ns=device_ns, beside_ns=beside_ns)


def pace(share: float) -> Change:
    """All that the host does takes a share of its time: a faster processor, an interpreter with less to do."""
    return Change(host_share=share)


def _ids(events: Events) -> np.ndarray:
    return np.asarray(events, dtype=np.int64)
