"""Where a job hangs, by the dumps of its ranks' flight recorders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.measure.distributed.together.hang import Standstill, standstills
from lanewise.report.evidence_columns import GROUP, Headings
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, text
from lanewise.trace.file.flight_dump import FlightDump

__all__ = ["hang_section"]

_NAMED = 8
_STATES = {"started": ", which is under way"}
_HEADINGS: Headings = [
    TableColumn("operation", "text", "collective"),
    TableColumn("sequence", "count", "number"),
    GROUP,
    TableColumn("missing", "text", "has not come"),
    TableColumn("there", "text", "waits"),
    TableColumn("unknown", "text", "no dump"),
    TableColumn("place", "text", "called in"),
]


def hang_section(dumps: Sequence[FlightDump], unreadable: Sequence[tuple[str, str]] = ()) -> Section:
    """Who is missing in which collective.

    Args:
        dumps: one for each rank. unreadable: dumps that could not be read: name, reason in one line.
    """
    found = standstills(dumps)
    told = [sentence for one in found for sentence in _told(one)]
    if not found:
        told = [
            TextBlock(
                "The flight recorders of {ranks} ranks show nothing that hangs: every collective that they hold came to "
                "its end.",
                {"ranks": count(len(dumps))},
            )
        ]
    told += [TextBlock("{reason}", {"reason": text(f"Left out: {reason}")}) for _, reason in unreadable]
    tables = {"hangs": Source("Where groups stand", columns_of([_row(one) for one in found], _HEADINGS), _HEADINGS)}
    return Section(told, tables if found else {})


def _told(one: Standstill) -> list[TextBlock]:
    group = f" of group {one.about or one.group}" if one.about or one.group else ""
    what = text(f"{one.operation} number {one.sequence}{group}")
    place = text(f", called in {one.place}" if one.place else "")
    if one.differ:
        parts = "; ".join(f"{_ranks(ranks)}: {call}" for call, ranks in one.differ.items())
        return [
            TextBlock(
                "The ranks do not call the same thing as number {number}{group}: {parts}.",
                {"number": count(one.sequence), "group": text(group), "parts": text(parts)},
            )
        ]
    if not one.missing and not one.unknown:
        return [
            TextBlock(
                "All ranks are in {what}{place}, and it does not end on all of them: look at the network between their "
                "machines, at their cards, and at what the devices do before it.",
                {"what": what, "place": place},
            )
        ]
    if not one.missing:
        unknown = text(_ranks(one.unknown, begins=False))
        return [
            TextBlock(
                "{there} wait in {what}{place}. Of {unknown} there is no dump: they may have ended.",
                {"there": text(_ranks(one.there)), "what": what, "place": place, "unknown": unknown},
            )
        ]
    said = [
        TextBlock(
            "{missing} {has} not come to {what}; {there} {wait} there{place}.",
            {
                "missing": text(_ranks(one.missing)),
                "has": text("has" if len(one.missing) == 1 else "have"),
                "what": what,
                "there": text(_ranks(one.there, begins=False)),
                "wait": text("waits" if len(one.there) == 1 else "wait"),
                "place": place,
            },
        )
    ]
    for rank in one.missing[:_NAMED]:
        last = one.last.get(rank)
        before = "nothing" if last is None else f"{last.operation} number {last.sequence}"
        state = {"scheduled": ", which has not begun", "started": ", which is under way"}.get(
            last.state if last else "", ""
        )
        where = f", in {last.place}" if last is not None and last.place else ""
        said.append(
            TextBlock(
                "The last that rank {rank} called in that group is {before}{state}{where}.",
                {"rank": count(rank), "before": text(before), "state": text(state), "where": text(where)},
            )
        )
    return said


def _ranks(ranks: Sequence[int], *, begins: bool = True) -> str:
    shown = ", ".join(map(str, ranks[:_NAMED])) + (f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else "")
    word = f"rank{'' if len(ranks) == 1 else 's'}"
    return f"{word.capitalize() if begins else word} {shown}"


def _row(one: Standstill) -> dict[str, Any]:
    return {
        "operation": one.operation,
        "sequence": one.sequence,
        "group": one.about or one.group,
        "missing": ", ".join(map(str, one.missing)),
        "there": ", ".join(map(str, one.there)),
        "unknown": ", ".join(map(str, one.unknown)),
        "place": one.place,
    }
