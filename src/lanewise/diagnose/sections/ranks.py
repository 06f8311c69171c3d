"""Ranks of a job beside each other: which one is late because of its own work, what it does then, what that costs."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from lanewise.diagnose.sections.communication import communication_section
from lanewise.diagnose.sections.rank_causes import cause_of, context_name, described, main_cause, what_to_do
from lanewise.diagnose.sections.rank_findings import findings_over_ranks, told_of_findings, which_ranks
from lanewise.diagnose.sections.section import Section, Source, columns_of
from lanewise.diagnose.settings import Settings
from lanewise.errors import UsageError
from lanewise.measure.core import Core
from lanewise.measure.distributed.gathering.executor import Executor
from lanewise.measure.distributed.gathering.read_ranks import RanksRead
from lanewise.measure.distributed.late_ranks import Job, compare_ranks
from lanewise.measure.distributed.together.job_what_ifs import WhatIf, what_ifs
from lanewise.measure.distributed.together.matched_communications import Matched, match
from lanewise.measure.distributed.without_late import Delay, delays_of
from lanewise.report.evidence_columns import (
    CAUSE,
    DEVICE,
    HOST,
    MINE,
    MORE,
    OTHERS,
    RANK,
    WHAT,
    WHERE,
    Headings,
    headed,
)
from lanewise.report.gain import price_text
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, ratio, share, text, time
from lanewise.trace.reader import read

__all__ = ["Explained", "JobTold", "told_of_job"]

_RANKS: Headings = [
    RANK,
    headed(HOST, "own host time"),
    headed(DEVICE, "own device time"),
    headed(MORE, "more than others"),
    CAUSE,
    TableColumn("speed", "ratio", "host while recorded"),
    TableColumn("file", "text", "file"),
]
_EXCESS: Headings = [RANK, MORE, MINE, OTHERS, CAUSE, WHERE]
_WHAT_IF: Headings = [
    headed(WHAT, "with"),
    TableColumn("how", "text", ""),
    TableColumn("step", "time", "step"),
]
_NAMED = 5
_UNEVEN_HOSTS = 1.25
_ALL_OF_IT = 0.9
"""A job that gains at least this share of what its late rank gains gains it."""
_FEW_IN_COMMON = 0.5
"""Where a larger share of what the ranks exchanged has no partner, they were recorded over other steps."""
_AT_ONE_TIME_NS = 600e9
"""Ranks of one job are recorded within this time."""


class JobTold(NamedTuple):
    """What is said of a job.

    Attributes:
        section: in sentences and tables. look_at: row of the rank to look at next: the latest, or else the first.
        is_late: whether that one is late.
        job: the ranks in order. together: what they did together.
    """

    section: Section
    look_at: int
    is_late: bool
    job: Job
    together: Matched


class Explained(NamedTuple):
    """How the ranks are explained, each by itself: by which settings, and what does it."""

    settings: Settings
    executor: Executor


def told_of_job(
    found: RanksRead,
    *,
    cache: bool = True,
    explained: Explained | None = None,
    replayed: bool = False,
    price: float = 0.0,
) -> JobTold:
    """Ranks of a job beside each other.

    Args:
        found: their summaries. cache: as they were read.
        explained: how each is explained, too; None where that is not asked for.
        replayed: whether to say what the step would be with other links and with even work.
        price: of an hour of the job, dollars; 0 for none.

    Raises:
        UsageError: the ranks have nothing in common.
    """
    together = match(found.ranks)
    if not together.collectives and not together.transfers and not _of_one_job(found):
        raise UsageError(
            "these traces have no collective in common, and no transfer: they are no ranks of one job, or were recorded "
            "over other steps"
        )
    compared = compare_ranks(found.ranks)
    row_of = {id(rank): row for row, rank in enumerate(found.ranks)}
    late_rows = [row_of[id(compared.ranks[late.index])] for late in compared.late]

    def core_of(row: int) -> Core:
        return Core(read(found.files[row_of[id(compared.ranks[row])]], cache=cache))

    job, delays = delays_of(compared, together, core_of)
    tables = {"ranks": Source("Ranks, per step without the profiler", _rows(job), _RANKS)}
    if job.late:
        tables["excess"] = Source("What late ranks do more", _excess(job), _EXCESS)
    communication = communication_section(job, together)
    tables |= communication.tables
    told = [*_apart(job, together), *_late(job, delays, price), *_doubts(job, together), *communication.statements]
    if replayed:
        rows = what_ifs(job, together, core_of)
        if rows:
            tables["what_if"] = _what_if(rows, job)
    if explained is not None:
        rows = which_ranks(found, late_rows)
        table, by_row = findings_over_ranks(found, rows, explained.settings, explained.executor, cache=cache)
        told += told_of_findings(table, len(by_row), len(found.ranks))
        if table is not None:
            tables["findings"] = table
    told += _left_out(found)
    return JobTold(Section(told, tables), late_rows[0] if late_rows else 0, bool(late_rows), job, together)


def _of_one_job(found: RanksRead) -> bool:
    """Whether the traces say that they are ranks of one job, though they were recorded over other steps."""
    numbers = {one.rank for one in found.ranks}
    began = [one.began_ns for one in found.ranks]
    return (
        -1 not in numbers
        and len({one.world for one in found.ranks}) == 1
        and found.ranks[0].world >= len(numbers)
        and any(one.communications for one in found.ranks)
        and max(began) - min(began) < _AT_ONE_TIME_NS
    )


def _late(job: Job, delays: list[Delay], price: float) -> list[TextBlock]:
    if not job.late:
        return [
            TextBlock(
                "The {ranks} ranks are even: once what recording cost is taken off, no rank's own work takes {least} "
                "({share}) more per step than the others'.",
                {
                    "ranks": count(len(job.ranks)),
                    "least": time(job.threshold_ns),
                    "share": share(job.threshold_ns / job.step_ns if job.step_ns else 0.0),
                },
            )
        ]
    said: list[TextBlock] = []
    for late in job.late:
        main, sum_ns = main_cause(late)
        said.append(
            TextBlock(
                "Rank {rank} is late: its own work takes {more} more per step than the others'. It spends {part} "
                "{what}.",
                {
                    "rank": text(_name(job, late.index)),
                    "more": time(late.more_ns),
                    "part": text("that time") if sum_ns >= 0.95 * late.more_ns else time(sum_ns),
                    "what": text(described(main)),
                },
            )
        )
        if advice := what_to_do(main, stacks=any(one.context.place for one in job.ranks[late.index].contexts)):
            said.append(TextBlock(advice, {}))
    return said + _without(job, delays, price)


def _without(job: Job, delays: list[Delay], price: float) -> list[TextBlock]:
    """The job without its late ranks, and what that saves: the latest one decides, and then the next."""
    worst = max(delays, key=lambda one: one.gain_ns)
    delay, step = worst.gain_ns, job.step_ns if job.timed else worst.step_ns
    if delay < 0.01 * step:
        why = "other ranks are as late" if worst.alone_ns >= 0.01 * step else "the device has other work meanwhile"
        return [
            TextBlock(
                f"The job does not wait for that: {why}. A step takes {{step}} in any case.",
                {"step": time(step)},
            )
        ]
    said = [
        TextBlock(
            "Without {what} a step of the job would take about {without} instead of {step} ({how}){saves}.",
            {
                "what": text("this" if len(delays) == 1 else "all of this"),
                "without": time(max(step - delay, 0.0)),
                "step": time(step),
                "how": text(
                    "timed without the profiler, less what the replay of the late rank gains"
                    if job.timed
                    else "the late rank replayed with and without it"
                ),
                "saves": text(f", which saves {saved}" if (saved := price_text(min(delay, step) / 1e3, price)) else ""),
            },
        )
    ]
    if delay < _ALL_OF_IT * worst.alone_ns:
        said.append(
            TextBlock(
                "By itself the late rank would gain {alone}; then another one is the last, by the steps timed without the "
                "profiler.",
                {"alone": time(worst.alone_ns)},
            )
        )
    return said


def _apart(job: Job, together: Matched) -> list[TextBlock]:
    """That some ranks exchange nothing with the others, although all exchange something."""
    parts = together.apart(len(job.ranks))
    if len(parts) == 1 or len(parts) == len(job.ranks):
        return []
    names = [f"{'rank' if len(rows) == 1 else 'ranks'} {_listed([_name(job, row) for row in rows])}" for rows in parts]
    return [
        TextBlock(
            "{one} exchange nothing with {others}: these are traces of more than one job, or ranks between them are "
            "missing. They are compared all the same.",
            {"one": text(names[0].capitalize()), "others": text(_listed(names[1:]))},
        )
    ]


def _doubts(job: Job, together: Matched) -> list[TextBlock]:
    said: list[TextBlock] = []
    for note in sorted({note for one in job.ranks for note in one.notes}):
        names = [one.file for one in job.ranks if note in one.notes]
        said.append(TextBlock(f"{{names}}: the file {note}.", {"names": text(_listed(names))}))
    exchanged = sum(len(one.communications) for one in job.ranks)
    if together.unmatched > _FEW_IN_COMMON * exchanged:
        nothing = together.unmatched == exchanged
        said.append(
            TextBlock(
                f"{'No step is' if nothing else 'Few steps are'} in all of the recordings: what each rank does by itself "
                "is compared, and of what they do together little can be told. Record all of them over the same steps."
            )
        )
    said.append(
        TextBlock(
            "{matched} are matched across the ranks{rest}.",
            {
                "matched": text(_matched(together)),
                "rest": text(f"; {together.unmatched} have no partner" if together.unmatched else ""),
            },
        )
    )
    apart = float(job.host_factor.max() / job.host_factor.min())
    if apart >= _UNEVEN_HOSTS:
        said.append(
            TextBlock(
                "While they were recorded, the slowest host took {apart} as long as the quickest for everything it did. "
                "That is mostly the profiler, so who waits for whom in the recording proves nothing.",
                {"apart": ratio(apart)},
            )
        )
    return said


def _matched(together: Matched) -> str:
    counts = {"collective": len(together.collectives), "transfer": len(together.transfers)}
    parts = [f"{number:,} {noun}{'s' * (number != 1)}" for noun, number in counts.items() if number]
    return " and ".join(parts) or "No collectives"


def _left_out(found: RanksRead) -> list[TextBlock]:
    said: list[TextBlock] = []
    if found.missing:
        said.append(
            TextBlock("No trace of rank {ranks}: they may be late, too.", {"ranks": text(_listed(found.missing))})
        )
    if found.earlier:
        said.append(
            TextBlock(
                "Left out, as they belong to an earlier job: {names}.",
                {"names": text(_listed([os.path.basename(name) for name in found.earlier]))},
            )
        )
    for name, other in found.twice:
        said.append(
            TextBlock(
                "{name} is left out: {other} is of the same rank.",
                {"name": text(os.path.basename(name)), "other": text(os.path.basename(other))},
            )
        )
    for name, reason in found.unreadable:
        said.append(
            TextBlock("{name} cannot be read: {reason}", {"name": text(os.path.basename(name)), "reason": text(reason)})
        )
    if found.passed_over:
        said.append(TextBlock("Not traces, and passed over: {names}.", {"names": text(_listed(found.passed_over))}))
    return said


def _listed(things: list[Any]) -> str:
    shown = ", ".join(str(one) for one in things[:_NAMED])
    return shown if len(things) <= _NAMED else f"{shown} and {len(things) - _NAMED} more"


def _what_if(rows: list[WhatIf], job: Job) -> Source:
    columns = columns_of(
        [{"what": one.what, "step": one.step_ns, "how": "at least" if one.bound else "about"} for one in rows], _WHAT_IF
    )
    now = f", {time(job.step_ns)} now" if job.timed else ""
    return Source(f"The step of the job, replayed{now}", columns, _WHAT_IF)


def _rows(job: Job) -> Any:
    cause = {late.index: cause_of(main_cause(late)[0]) for late in job.late}
    rows: list[dict[str, Any]] = [
        {
            "rank": _name(job, row),
            "host": float(job.host_ns[row]),
            "device": float(job.device_ns[row]),
            "more": float(job.more_ns[row]),
            "cause": cause.get(row, ""),
            "speed": float(job.host_factor[row]),
            "file": one.file,
        }
        for row, one in enumerate(job.ranks)
    ]
    if len(rows) > 1:
        order = np.argsort([-row["more"] for row in rows], kind="stable") if job.late else range(len(rows))
        rows = [rows[row] for row in order]
    return columns_of(rows, _RANKS)


def _excess(job: Job) -> Any:
    rows = [
        {
            "rank": _name(job, late.index),
            "more": one.more_ns,
            "mine": one.mine_ns,
            "others": one.others_ns,
            "cause": cause_of(one),
            "where": context_name(one.context),
        }
        for late in job.late
        for one in late.excess
    ]
    return columns_of(rows, _EXCESS)


def _name(job: Job, row: int) -> str:
    rank = job.ranks[row].rank
    return str(rank) if rank >= 0 else f"? ({job.ranks[row].file})"
