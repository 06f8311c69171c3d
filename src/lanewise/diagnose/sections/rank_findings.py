"""What `explain` finds on each rank of a job, put together: which finding is on how many ranks, and where it costs most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import msgspec

from lanewise.diagnose.explain import explain
from lanewise.diagnose.report_cache import explained
from lanewise.diagnose.sections.section import Source, columns_of
from lanewise.diagnose.settings import Settings
from lanewise.errors import LanewiseError
from lanewise.measure.distributed.gathering.executor import Executor
from lanewise.measure.distributed.gathering.read_ranks import RanksRead
from lanewise.report.evidence_columns import NAME, RANKS, WHERE, Headings, headed
from lanewise.report.gain import helps, price_text
from lanewise.report.model import TableColumn, TextBlock
from lanewise.report.quantity import count, text
from lanewise.trace.reader import read

__all__ = ["RankFinding", "findings_over_ranks", "told_of_findings", "which_ranks"]

MOST = 32
"""Ranks of a large job that are explained: a sample says on which share of them a finding is."""

_NAMED = 3
_HEADINGS: Headings = [
    TableColumn("code", "text", "code"),
    headed(NAME, "finding"),
    RANKS,
    TableColumn("gain", "time", "gain, median"),
    TableColumn("most", "time", "most"),
    headed(WHERE, "on rank"),
]
_SAVES = TableColumn("saves", "text", "saves")


class RankFinding(msgspec.Struct, frozen=True):
    """One finding of one rank. `gain_ns` is what it would give by itself, ns per step."""

    code: str
    name: str
    gain_ns: float


class _Asked(msgspec.Struct, frozen=True):
    """What is explained, and by which settings."""

    trace: str
    settings: dict[str, Any]


def which_ranks(found: RanksRead, late: Sequence[int] = ()) -> list[int]:
    """Rows of the ranks that are explained: all, or of a large job `MOST` evenly over it, the late ones among them."""
    rows = len(found.ranks)
    if rows <= MOST:
        return list(range(rows))
    chosen = {round(at * (rows - 1) / (MOST - 1)) for at in range(MOST)}
    return sorted(chosen | set(late))


def findings_over_ranks(
    found: RanksRead, rows: Sequence[int], settings: Settings, executor: Executor, *, cache: bool
) -> tuple[Source | None, dict[int, list[RankFinding]]]:
    """What is found on those ranks, as a table and by row; no table where nothing is found on any.

    Args:
        found: the job. rows: which of its ranks. settings: of the project. executor: where they are explained.
        cache: whether reports and parsed copies are kept.
    """
    asked = [msgspec.json.encode(_Asked(found.files[row], asdict(settings))).decode() for row in rows]
    answers = executor.each(f"{__name__}:encoded_findings", asked, cache=cache)
    by_row: dict[int, list[RankFinding]] = {}
    for row, answer in zip(rows, answers, strict=True):
        findings = msgspec.msgpack.decode(answer, type=list[RankFinding] | None) if answer else None
        if findings is not None:
            by_row[row] = findings
    table = _table(found, by_row, settings.price)
    if not table:
        return None, by_row
    title = f"What explain finds on {len(by_row)} ranks"
    headings = [*_HEADINGS, _SAVES] if settings.price else _HEADINGS
    return Source(title, columns_of(table, headings), headings), by_row


def encoded_findings(asked: str, cache: bool) -> bytes:
    """The findings of a rank that shorten its step; runs where its trace is read. Nothing where it cannot be."""
    one = msgspec.json.decode(asked, type=_Asked)
    given = one.settings
    settings = Settings(tuple(given["select"]), tuple(given["ignore"]), given["thresholds"], given["source"])
    try:
        report = explained(one.trace, settings) if cache else explain(read(one.trace, cache=False), settings=settings)
    except LanewiseError:
        return msgspec.msgpack.encode(None)
    found = [
        RankFinding(finding.code, finding.name, finding.alone_us_per_step * 1e3)
        for finding in report.findings
        if helps(finding)
    ]
    return msgspec.msgpack.encode(found)


def told_of_findings(table: Source | None, of: int, ranks: int) -> list[TextBlock]:
    """The findings that cost most, in a sentence: "LAU101 on 31 of 32 ranks".

    Args:
        table: of the findings. of: ranks that were explained. ranks: of the job.
    """
    if table is None or not of:
        return []
    codes, names, where = (table.data[key] for key in ("code", "name", "ranks"))
    parts = [f"{code} {name} on {on}" for code, name, on in list(zip(codes, names, where, strict=True))[:_NAMED]]
    more = len(codes) - len(parts)
    sampled = " of {of} of them, evenly chosen" if of < ranks else ""
    return [
        TextBlock(
            f"What `explain` finds{sampled}: {{found}}{'; {more} more in the table' if more > 0 else ''}.",
            {"found": text(", ".join(parts)), "of": count(of), "more": count(more)},
        )
    ]


def _table(found: RanksRead, by_row: dict[int, list[RankFinding]], price: float) -> list[dict[str, Any]]:
    gains: dict[tuple[str, str], dict[int, float]] = {}
    for row, findings in by_row.items():
        for one in findings:
            on = gains.setdefault((one.code, one.name), {})
            on[row] = on.get(row, 0.0) + one.gain_ns
    rows: list[dict[str, Any]] = []
    for (code, name), on in gains.items():
        most = max(on, key=lambda row: on[row])
        gain = median(on.values())
        rows.append(
            {
                "code": code,
                "name": name,
                "ranks": f"{len(on)} of {len(by_row)}",
                "gain": gain,
                "saves": price_text(gain / 1e3, price),
                "most": on[most],
                "where": str(found.ranks[most].rank) if found.ranks[most].rank >= 0 else found.ranks[most].file,
            }
        )
    return sorted(rows, key=lambda one: -sum(gains[one["code"], one["name"]].values()))
