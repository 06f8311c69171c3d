"""Two jobs beside each other: the step, who was late and who is, own work of each rank, communication."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.sections.rank_causes import cause_of, main_cause
from lanewise.diagnose.sections.ranks import JobTold
from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.measure.distributed.late_ranks import Job
from lanewise.measure.distributed.together.communication_figures import Traffic, traffic_of
from lanewise.measure.distributed.together.matched_communications import match
from lanewise.report.evidence_columns import BYTES, COUNT, DEVICE, HOST, KIND, RANK, Headings, headed
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, ratio, text, time

__all__ = ["jobs_section"]

_RANKS: Headings = [
    RANK,
    TableColumn("host_before", "time", "own host time before"),
    headed(HOST, "after"),
    TableColumn("device_before", "time", "own device time before"),
    headed(DEVICE, "after"),
    TableColumn("late", "text", "late"),
]
_COMMUNICATION: Headings = [
    headed(KIND, "collective"),
    headed(BYTES, "message"),
    TableColumn("count_before", "count", "per step before"),
    headed(COUNT, "after"),
    TableColumn("moving_before", "time", "moving before"),
    TableColumn("moving", "time", "after"),
    TableColumn("bus_before", "bandwidth", "bus before"),
    TableColumn("bus", "bandwidth", "after"),
]
_SAME = 0.03
"""A step that differs by less is not said to have changed."""


def jobs_section(before: JobTold, after: JobTold) -> Section:
    """What changed from one job to another of the same program.

    Args:
        before, after: what is said of each.
    """
    a, b = before.job, after.job
    ranks = [_rank_row(a, b, rank) for rank in _numbers(a, b)]
    tables = {"ranks": Source("Ranks of both jobs, per step without the profiler", columns_of(ranks, _RANKS), _RANKS)}
    if rows := _communication(a, b):
        title = "Communication of both jobs, per step as recorded"
        tables["communication"] = Source(title, columns_of(rows, _COMMUNICATION), _COMMUNICATION)
    return Section([_step(a, b), *_late(a, b), *_sizes(a, b)], tables)


def _numbers(a: Job, b: Job) -> list[int]:
    return sorted({one.rank for one in a.ranks} | {one.rank for one in b.ranks})


def _step(a: Job, b: Job) -> TextBlock:
    values = {"before": time(a.step_ns), "after": time(b.step_ns)}
    if not (a.timed and b.timed):
        return TextBlock(
            "A step by itself, without communication, takes {after}, {before} before; what the job takes was not timed in "
            "both: lanewise run times it.",
            values,
        )
    change = b.step_ns / a.step_ns
    if abs(change - 1.0) < _SAME:
        return TextBlock("The step takes as long as before: {after}, {before} before, without the profiler.", values)
    word = "longer" if change > 1.0 else "shorter"
    return TextBlock(
        f"The step is {word}: {{after}}, {{before}} before ({{change}}), timed without the profiler.",
        values | {"change": ratio(change)},
    )


def _late(a: Job, b: Job) -> list[TextBlock]:
    was, now = _late_of(a), _late_of(b)
    said = [
        _sentence("Rank {rank} was late ({more}, {cause}) and is not any more.", *was[one]) for one in was.keys() - now
    ]
    said += [_sentence("Rank {rank} is late now: {more} per step, {cause}.", *now[one]) for one in now.keys() - was]
    said += [_sentence("Rank {rank} is still late: {more} per step, {cause}.", *now[one]) for one in now.keys() & was]
    return said or [TextBlock("No rank is late, before or after.")]


def _late_of(job: Job) -> dict[int, tuple[int, float, str]]:
    return {(rank := job.ranks[one.index].rank): (rank, one.more_ns, cause_of(main_cause(one)[0])) for one in job.late}


def _sentence(template: str, rank: int, more: float, cause: str) -> TextBlock:
    return TextBlock(template, {"rank": count(rank), "more": time(more), "cause": text(cause)})


def _sizes(a: Job, b: Job) -> list[TextBlock]:
    if len(a.ranks) == len(b.ranks):
        return []
    return [
        TextBlock(
            "The jobs have {before} and {after} ranks: what one does is not the same in both.",
            {"before": count(len(a.ranks)), "after": count(len(b.ranks))},
        )
    ]


def _rank_row(a: Job, b: Job, rank: int) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": str(rank)}
    for job, suffix in ((a, "_before"), (b, "")):
        at = next((at for at, one in enumerate(job.ranks) if one.rank == rank), None)
        row[f"host{suffix}"] = float(job.host_ns[at]) if at is not None else np.nan
        row[f"device{suffix}"] = float(job.device_ns[at]) if at is not None else np.nan
    was, now = rank in _late_of(a), rank in _late_of(b)
    row["late"] = "both" if was and now else "before" if was else "now" if now else ""
    return row


def _communication(a: Job, b: Job) -> list[dict[str, Any]]:
    sides = [{_key(one): one for one in traffic_of(job.ranks, match(job.ranks))} for job in (a, b)]
    rows: list[dict[str, Any]] = []
    for key in dict.fromkeys([*sides[1], *sides[0]]):
        row: dict[str, Any] = {"kind": key[0], "bytes": key[2] if key[2] >= 0 else np.nan}
        for side, suffix in zip(sides, ("_before", ""), strict=True):
            one = side.get(key)
            row[f"count{suffix}"] = round(one.count, 2) if one is not None else np.nan
            row[f"moving{suffix}"] = one.moving if one is not None else np.nan
            row[f"bus{suffix}"] = (one.bus or np.nan) if one is not None else np.nan
        rows.append(row)
    return rows


def _key(one: Traffic) -> tuple[str, int, float]:
    return one.kind, one.ranks, one.bytes
