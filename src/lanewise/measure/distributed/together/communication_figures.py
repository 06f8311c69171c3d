"""Communication of a job: what is sent in which groups, how fast, how much of it is exposed and how much waited for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lanewise.measure.distributed.communications import Communication
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.measure.distributed.together.bus_bandwidth import bus_factor, kind_of
from lanewise.measure.distributed.together.matched_communications import Matched, Seen

__all__ = ["Traffic", "link_of", "traffic_of"]

_SIZES = 8
"""Messages of more sizes than these are put together by powers of two."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages of one kind and size in groups of one purpose; times in ns per step and rank, as recorded.

    Attributes:
        group: what the program calls the groups, else the name of the one. ranks: of a group, -1 if unknown.
        kind: the collective, or `send`. groups: in how many.
        bytes: of a message, the mean; -1 if unknown. count: messages of a rank in a step.
        moving: the shortest that any rank takes, in sum: the data moves meanwhile, no rank waits.
        waiting: what the ranks take longer than that, on average: they wait for the last one.
        exposed, hidden: nothing is computed beside it, or something is; -1 without a device.
        algorithm, bus: bandwidth, bytes/s; 0 if unknown.
        link: rate of the links it takes, bytes/s, 0 if unknown.
    """

    group: str
    ranks: int
    kind: str
    groups: int
    bytes: float
    count: float
    moving: float
    waiting: float
    exposed: float
    hidden: float
    algorithm: float
    bus: float
    link: float


def traffic_of(ranks: Sequence[RankSummary], together: Matched) -> list[Traffic]:
    """Communication by group, kind and size, what takes longest first."""
    classes: defaultdict[tuple[str, int, str], list[list[Seen]]] = defaultdict(list)
    for seen in (*together.collectives, *together.transfers):
        first = seen[0][1]
        size = max(first.size, len(seen) if first.size < 0 else first.size)
        classes[_purpose(first), size, kind_of(first.name)].append(seen)
    # Steps of each rank in which something is matched; a recording without steps is one.
    matched = {(row, one.step) for seen in (*together.collectives, *together.transfers) for row, one in seen}
    steps = Counter(row for row, _ in matched)
    found: list[Traffic] = []
    for (group, size, kind), all_seen in classes.items():
        sizes = sorted({seen[0][1].bytes for seen in all_seen})
        parts: defaultdict[int, list[list[Seen]]] = defaultdict(list)
        for seen in all_seen:
            bytes_ = seen[0][1].bytes
            parts[bytes_ if len(sizes) <= _SIZES else max(bytes_, 0).bit_length()].append(seen)
        found += [_of(ranks, steps, group, size, kind, part) for part in parts.values()]
    return sorted(found, key=lambda one: -(one.moving + one.waiting))


def _purpose(one: Communication) -> str:
    return one.about if one.about and one.about != "undefined" else one.group


def _of(
    ranks: Sequence[RankSummary],
    steps_of: Counter[int],
    group: str,
    size: int,
    kind: str,
    all_seen: list[list[Seen]],
) -> Traffic:
    members = {row for seen in all_seen for row, _ in seen}
    steps = sum(steps_of[row] for row in members)
    length = [np.array([one.end - one.arrival for _, one in seen], dtype=np.float64) for seen in all_seen]
    shortest = np.array([one.min() for one in length])
    present = np.array([len(one) for one in length], dtype=np.float64)
    total = sum(float(one.sum()) for one in length)
    hidden = [one.hidden for seen in all_seen for _, one in seen]
    known = min(hidden) >= 0
    sizes = np.array([seen[0][1].bytes for seen in all_seen], dtype=np.float64)
    sized = (sizes > 0) & (shortest > 0)
    algorithm = float(sizes[sized].sum() / shortest[sized].sum() * 1e9) if sized.any() else 0.0
    return Traffic(
        group=group,
        ranks=size,
        kind=kind,
        groups=len({seen[0][1].group for seen in all_seen}),
        bytes=float(sizes[sizes >= 0].mean()) if (sizes >= 0).any() else -1.0,
        count=float(present.sum()) / steps,
        moving=float((shortest * present).sum()) / steps,
        waiting=(total - float((shortest * present).sum())) / steps,
        exposed=(total - sum(hidden)) / steps if known else -1.0,
        hidden=sum(hidden) / steps if known else -1.0,
        algorithm=algorithm,
        bus=algorithm * bus_factor(kind, size),
        link=link_of([ranks[row] for row in sorted(members)]),
    )


def link_of(members: Sequence[RankSummary]) -> float:
    """Rate of the links between these ranks, each way, bytes/s: of their cards, where all of them sit in one machine."""
    nodes = {one.node for one in members}
    world = max(one.world for one in members)
    together = (len(nodes) == 1 and -1 not in nodes) or 0 < world <= min(one.devices for one in members)
    rates = {one.link for one in members}
    return rates.pop() if together and len(rates) == 1 else 0.0
