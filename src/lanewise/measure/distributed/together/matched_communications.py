"""The same collective on every rank of its group, and a send with its receive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lanewise.measure.distributed.communications import Communication
from lanewise.measure.distributed.rank_summary import RankSummary

__all__ = ["Matched", "Seen", "match"]


Seen = tuple[int, Communication]
"""Row of a rank, and what it saw."""


@dataclass(frozen=True, slots=True)
class Matched:
    """What the ranks of a job did together.

    Attributes:
        collectives: what each rank saw of one, with the row of the rank; on two ranks at least.
        transfers: a send and its receive, the same.
        unmatched: number of what has no partner.
    """

    collectives: list[list[Seen]]
    transfers: list[list[Seen]]
    unmatched: int

    def moving(self, row: int) -> dict[int, float]:
        """What moving the data takes, ns, by when the part of that rank begins: the shortest that any rank takes."""
        found: dict[int, float] = {}
        for seen in (*self.collectives, *self.transfers):
            shortest = min(one.end - one.arrival for _, one in seen)
            for other, one in seen:
                if other == row:
                    found[one.arrival] = float(shortest)
        return found

    def apart(self, count: int) -> list[list[int]]:
        """Rows of so many ranks by who exchanges something with whom, or through others; one list where all do."""
        above = list(range(count))

        def first(row: int) -> int:
            while above[row] != row:
                row = above[row] = above[above[row]]
            return row

        for seen in (*self.collectives, *self.transfers):
            one = first(seen[0][0])
            for row, _ in seen:
                above[first(row)] = one
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for row in range(count):
            parts[first(row)].append(row)
        return list(parts.values())


def match(ranks: Sequence[RankSummary]) -> Matched:
    """Match by group, step and order; a transfer by its two ends."""
    collectives: defaultdict[tuple[object, ...], list[Seen]] = defaultdict(list)
    sends: defaultdict[tuple[object, ...], list[Seen]] = defaultdict(list)
    receives: defaultdict[tuple[object, ...], list[Seen]] = defaultdict(list)
    for row, rank in enumerate(ranks):
        seen: defaultdict[tuple[object, ...], int] = defaultdict(int)
        for one in rank.communications:
            source, target = _ends(one, ranks)
            key: tuple[object, ...]
            if one.name in ("send", "recv"):
                key = (one.group, source, target, one.step)
                (sends if one.name == "send" else receives)[key].append((row, one))
                continue
            # With the step of a recording that marks them, else by order alone.
            key = (one.group, one.name, one.bytes, one.step)
            seen[key] += 1
            collectives[*key, seen[key]].append((row, one))
    together = [group for group in collectives.values() if len({row for row, _ in group}) > 1]
    pairs = [
        [send, receive]
        for key, mine in sends.items()
        if -1 not in key[1:3]
        for send, receive in zip(mine, receives.get(key, []), strict=False)
    ]
    total = sum(len(one.communications) for one in ranks)
    matched = sum(len(group) for group in (*together, *pairs))
    return Matched(together, pairs, total - matched)


def _ends(one: Communication, ranks: Sequence[RankSummary]) -> tuple[int, int]:
    """Source and target; where a job of two ranks does not say the other end, it is the other rank."""
    if one.name not in ("send", "recv") or -1 not in (one.source, one.target) or len(ranks) != 2:
        return one.source, one.target
    known = max(one.source, one.target)
    other = next((rank.rank for rank in ranks if rank.rank != known), -1)
    return (one.source, other) if one.source == known else (other, one.target)
