"""Several ranks of one job beside each other: who comes last to the collectives, and who waits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from lanewise.diagnose.sections.section import Headings, Section, Source, columns_of
from lanewise.errors import UsageError
from lanewise.measure.distributed.ranks import Ranks, collectives
from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES
from lanewise.report.model import TextBlock
from lanewise.report.quantity import count, time

__all__ = ["job_of", "matched", "ranks_section"]

# Ends of the same collective that lie further apart are not those of the same collective.
_CLOCK_SPREAD_NS = 1_000_000

_RANKS: Headings = {
    "rank": ("text", "rank"),
    "step": ("time", "step"),
    "regime": ("text", "bound by"),
    "busy": ("share", "device busy"),
    "last": ("share", "comes last"),
    "waits": ("time", "waits per step"),
    "transfer": ("time", "transfers per step"),
    "file": ("text", "file"),
}
_COLLECTIVES: Headings = {
    "number": ("count", "collective"),
    "name": ("text", "name"),
    "bytes": ("bytes", "bytes"),
    "step": ("text", "step"),
    "last": ("text", "last rank"),
    "transfer": ("time", "transfer"),
    "waits": ("time", "longest wait"),
    "waiting_rank": ("text", "of rank"),
}


def job_of(ranks: Sequence[Facts]) -> Facts:
    """The facts of the first rank with the others as its peers.

    Raises:
        UsageError: two files hold the same recording, or no collective is common to all of them.
    """
    seen: dict[str, str] = {}
    for facts in ranks:
        reading = facts.trace.reading
        if reading.digest and reading.digest in seen:
            raise UsageError(
                f"{seen[reading.digest]} and {reading.source} hold the same recording: give each rank once"
            )
        seen[reading.digest] = reading.source
    first, *others = ranks
    job = Facts(first.trace, unprofiled_ns=first.unprofiled_ns, peers=others)
    matched(job)
    return job


def matched(job: Facts) -> Ranks:
    """The matched collectives of a job. UsageError if its ranks share none."""
    if job.ranks is None:
        raise UsageError(
            "these traces have no collective in common: they are no ranks of one job, or were recorded over other steps"
        )
    return job.ranks


def ranks_section(job: Facts) -> Section:
    """Ranks of a job beside each other, and the collectives that made one of them wait longest."""
    ranks = matched(job)
    everyone = (job, *job.peers)
    chosen = np.flatnonzero(ranks.steady)
    if len(chosen) == 0:
        chosen = np.arange(len(ranks.last))
    steps = max(1, min(int(np.count_nonzero(one.steps.steady)) for one in everyone))
    last = np.bincount(ranks.last[chosen], minlength=len(everyone)) / len(chosen)
    rows: list[dict[str, Any]] = [
        {
            "rank": _name(ranks, column),
            "step": one.steps.step_ns,
            "regime": REGIMES[one.regime.name][1],
            "busy": one.regime.busy_share,
            "last": float(last[column]),
            "waits": float(ranks.waiting[chosen, column].sum()) / steps,
            "transfer": float(ranks.shortest[chosen].sum()) / steps,
            "file": os.path.basename(one.trace.reading.source),
        }
        for column, one in enumerate(everyone)
    ]
    rows.sort(key=lambda row: (len(row["rank"]), row["rank"]))
    return Section(
        _statements(ranks, chosen, steps),
        {
            "ranks": Source("Ranks", columns_of(rows, _RANKS), _RANKS),
            "collectives": Source("Collectives, longest wait first", _collectives(job, ranks, chosen), _COLLECTIVES),
        },
    )


def _collectives(job: Facts, ranks: Ranks, chosen: np.ndarray) -> Any:
    own = collectives(job)
    row_of_event = {int(event): row for row, event in enumerate(own.event.tolist())}
    numbers = job.trace.steps.number
    rows: list[dict[str, Any]] = []
    for at in chosen[np.argsort(-ranks.waiting[chosen].max(axis=1), kind="stable")].tolist():
        row = row_of_event[int(ranks.event[at, 0])]
        step = int(own.step[row])
        waits = ranks.waiting[at]
        rows.append(
            {
                "number": at + 1,
                "name": own.key[row][1],
                "bytes": int(own.bytes[row]),
                "step": f"#{int(numbers[step])}" if step >= 0 and job.trace.steps.recorded else "",
                "last": _name(ranks, int(ranks.last[at])),
                "transfer": int(ranks.shortest[at]),
                "waits": int(waits.max()),
                "waiting_rank": _name(ranks, int(waits.argmax())),
            }
        )
    return columns_of(rows, _COLLECTIVES)


def _statements(ranks: Ranks, chosen: np.ndarray, steps: int) -> list[TextBlock]:
    waited = float(ranks.waiting[chosen].sum()) / steps / len(ranks.rank)
    found = [
        TextBlock(
            "{collectives} collectives per step are common to all {ranks} ranks; a rank waits {waited} per step in them "
            "for the others, on average.",
            {
                "collectives": count(round(len(chosen) / steps, 1)),
                "ranks": count(len(ranks.rank)),
                "waited": time(waited),
            },
        )
    ]
    if ranks.unmatched:
        found.append(TextBlock("{n} collectives of some ranks have no partner.", {"n": count(ranks.unmatched)}))
    if ranks.clock_spread > _CLOCK_SPREAD_NS:
        found.append(
            TextBlock(
                "The ends of the same collective lie {apart} apart: these may not be the same steps, and nothing here is "
                "sure.",
                {"apart": time(ranks.clock_spread)},
            )
        )
    return found


def _name(ranks: Ranks, column: int) -> str:
    number = ranks.rank[column]
    return str(number) if number >= 0 else f"? ({column + 1}. file)"
