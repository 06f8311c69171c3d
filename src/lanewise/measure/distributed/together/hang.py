"""Where a job hangs, from the dumps of its ranks' flight recorders: who has not come to which collective.

In each group the collectives are numbered, and the n-th is the same on all members. The first one that is not there, or not
over, on every member is where the group stands.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lanewise.trace.file.flight_dump import FlightDump, FlightEntry

__all__ = ["Standstill", "standstills"]

_ENDS = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")


@dataclass(frozen=True)
class Standstill:
    """A collective or transfer that did not come to its end.

    Attributes:
        group: name of the group. about: what the program calls it. sequence, operation, shapes: which one it is.
        there: ranks that called it. missing: members that did not. unknown: members without a dump.
        last: by missing rank the last thing that it called in the group, None for nothing.
        differ: what each rank called, where these are not the same.
        place: where those that are there called it. since_ns: when the first of them did, wall clock.
    """

    group: str
    about: str
    sequence: int
    operation: str
    shapes: str
    there: list[int]
    missing: list[int]
    unknown: list[int]
    last: dict[int, FlightEntry | None]
    differ: dict[str, list[int]]
    place: str
    since_ns: int


def standstills(dumps: Sequence[FlightDump]) -> list[Standstill]:
    """Where each group stands, the one that has stood longest first; none for groups in which all is over."""
    groups: dict[str, list[int]] = {}
    for dump in dumps:
        groups |= dump.groups
    for dump in dumps:
        for entry in dump.entries:
            if entry.group not in groups or dump.rank not in groups[entry.group]:
                groups[entry.group] = sorted({*groups.get(entry.group, []), dump.rank})
    found = [standstill for name, members in groups.items() if (standstill := _of_group(name, members, dumps))]
    found += _of_transfers(dumps, groups)
    return sorted(found, key=lambda one: (one.since_ns, one.group))


def _of_group(name: str, members: Sequence[int], dumps: Sequence[FlightDump]) -> Standstill | None:
    by_rank: dict[int, dict[int, FlightEntry]] = {}
    for dump in dumps:
        if dump.rank in members:
            # Of a number that stands for several (coalesced) the first.
            mine: dict[int, FlightEntry] = {}
            for entry in dump.entries:
                if entry.group == name and not entry.transfer and entry.sequence >= 0:
                    mine.setdefault(entry.sequence, entry)
            by_rank[dump.rank] = mine
    if len(by_rank) < 1 or not any(by_rank.values()):
        return None
    # What is older than the ring of a recorder holds was over.
    oldest = max((min(mine) for mine in by_rank.values() if mine), default=0)
    numbers = sorted({number for mine in by_rank.values() for number in mine if number >= oldest})
    for number in numbers:
        there = {rank: mine[number] for rank, mine in by_rank.items() if number in mine}
        calls: defaultdict[str, list[int]] = defaultdict(list)
        for rank, entry in sorted(there.items()):
            calls[_call(entry)].append(rank)
        missing = sorted(set(by_rank) - set(there))
        over = all(entry.over for entry in there.values())
        if over and not missing and len(calls) == 1:
            continue
        if over and len(calls) == 1 and all(max(by_rank[rank], default=-1) > number for rank in missing):
            continue  # it was not recorded there
        first = min(there.values(), key=lambda one: one.created_ns)
        return Standstill(
            group=name,
            about=first.about,
            sequence=number,
            operation=first.operation,
            shapes=first.shapes,
            there=sorted(there),
            missing=missing,
            unknown=sorted(set(members) - set(by_rank)),
            last={rank: by_rank[rank][max(by_rank[rank])] if by_rank[rank] else None for rank in missing},
            differ=dict(calls) if len(calls) > 1 else {},
            place=first.place,
            since_ns=first.created_ns,
        )
    return None


def _call(entry: FlightEntry) -> str:
    """What must be the same on all ranks. Broadcasts and scatters may be given inputs of other shapes."""
    same_shape = re.search(r"all_?reduce|reduce_?scatter", entry.operation)
    return f"{entry.operation} {entry.shapes}" if same_shape else entry.operation


def _of_transfers(dumps: Sequence[FlightDump], groups: Mapping[str, list[int]]) -> list[Standstill]:
    """Transfers whose other end has not been called. Their names number the ranks as the group does."""
    ends: defaultdict[tuple[str, int, int], dict[str, list[FlightEntry]]] = defaultdict(
        lambda: {"send": [], "recv": []}
    )
    for dump in dumps:
        for entry in dump.entries:
            ranks = _ENDS.search(entry.operation) if entry.transfer else None
            if ranks is None:
                continue
            members = groups.get(entry.group, [])
            left, right = (members[end] if end < len(members) else end for end in (int(ranks[1]), int(ranks[3])))
            source, target = (left, right) if ranks[2] == "->" else (right, left)
            way = "recv" if "recv" in entry.operation else "send"
            ends[entry.group, source, target][way].append(entry)
    known = {dump.rank for dump in dumps}
    found: list[Standstill] = []
    for (group, source, target), ways in ends.items():
        sent, received = len(ways["send"]), len(ways["recv"])
        if sent == received or not {source, target} <= known:
            continue
        more, late = ("send", target) if sent > received else ("recv", source)
        entry = ways[more][min(sent, received)]
        others = ways["recv" if more == "send" else "send"]
        found.append(
            Standstill(
                group=group,
                about=entry.about,
                sequence=entry.sequence,
                operation=entry.operation,
                shapes=entry.shapes,
                there=[source if more == "send" else target],
                missing=[late],
                unknown=[],
                last={late: others[-1] if others else None},
                differ={},
                place=entry.place,
                since_ns=entry.created_ns,
            )
        )
    return found
