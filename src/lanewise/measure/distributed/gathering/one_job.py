"""Which of the traces that lie together are of one job: each rank once, and of the newest job where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lanewise.measure.distributed.rank_summary import RankSummary

__all__ = ["OneJob", "newest_job"]

Named = tuple[str, RankSummary]
"""The name of a trace with its summary."""


@dataclass(frozen=True)
class OneJob:
    """Traces of one job.

    Attributes:
        ranks: each rank once, in order. twice: left out as another one is of the same rank: name, name of the other.
        earlier: left out as they are of a job before.
    """

    ranks: list[Named]
    twice: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    earlier: list[str] = field(default_factory=list[str])


def newest_job(found: Sequence[Named]) -> OneJob:
    """The ranks of the newest job.

    All ranks of a job are recorded at about the same time. Where a rank is there twice, the traces are parted at the
    longest time between two beginnings that parts the two; without times the first of them is taken.
    """
    distinct, copies = _distinct(found)
    ordered = sorted(distinct, key=lambda one: -one[1].began_ns)
    if any(one.began_ns == 0 for _, one in ordered):
        kept, twice = _first_of_each(distinct)
        return OneJob(_by_rank(kept), [*copies, *twice])
    last = len(ordered)
    seen: dict[int, int] = {}
    for row, (_, one) in enumerate(ordered):
        if one.rank >= 0 and one.rank in seen:
            begin = [rank.began_ns for _, rank in ordered]
            last = max(range(seen[one.rank], row), key=lambda at: begin[at] - begin[at + 1]) + 1
            break
        seen[one.rank] = row
    # Beginnings in one instant are no two jobs: a second file of the rank.
    if last < len(ordered) and ordered[last - 1][1].began_ns == ordered[last][1].began_ns:
        kept, twice = _first_of_each(distinct)
        return OneJob(_by_rank(kept), [*copies, *twice])
    return OneJob(_by_rank(ordered[:last]), copies, sorted(name for name, _ in ordered[last:]))


def _by_rank(named: Sequence[Named]) -> list[Named]:
    return sorted(named, key=lambda one: one[1].rank)


def _distinct(found: Sequence[Named]) -> tuple[list[Named], list[tuple[str, str]]]:
    """Each recording once."""
    kept: list[Named] = []
    first: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    for name, one in found:
        if one.digest and one.digest in first:
            copies.append((name, first[one.digest]))
            continue
        if one.digest:
            first[one.digest] = name
        kept.append((name, one))
    return kept, copies


def _first_of_each(found: Sequence[Named]) -> tuple[list[Named], list[tuple[str, str]]]:
    kept: list[Named] = []
    first: dict[int, str] = {}
    twice: list[tuple[str, str]] = []
    for name, one in found:
        if one.rank >= 0 and one.rank in first:
            twice.append((name, first[one.rank]))
            continue
        first.setdefault(one.rank, name)
        kept.append((name, one))
    return kept, twice
