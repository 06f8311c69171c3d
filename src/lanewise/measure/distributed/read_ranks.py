"""Traces of a job -> summaries of its ranks, one trace in memory at a time for each process; what is left out, by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lanewise.errors import UsageError
from lanewise.measure.distributed.rank_summary import RankSummary
from lanewise.measure.distributed.rank_worker import summaries, summary_of
from lanewise.trace.file.source import resolve

__all__ = ["RanksRead", "read_ranks"]

_POOL_FROM = 8
"""Starting processes pays off from so many traces on."""


@dataclass(frozen=True)
class RanksRead:
    """What was read.

    Attributes:
        ranks: one summary for each rank, by number.
        files: the trace of each, in the same order.
        passed_over: names of files in the folder that are no traces.
        unreadable: traces that could not be read, with the reason in one line.
        twice: traces left out because another one is of the same rank: name, name of the other.
        missing: ranks of the job without a trace.
    """

    ranks: list[RankSummary]
    files: list[str]
    passed_over: list[str] = field(default_factory=list[str])
    unreadable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    twice: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missing: list[int] = field(default_factory=list[int])


def read_ranks(sources: Sequence[str], *, cache: bool = True, workers: int | None = None) -> RanksRead:
    """Read the ranks of a job.

    Args:
        sources: traces, or folders of them.
        cache: keep the summary of each, by the content of its trace; and a parsed copy of large ones.
        workers: processes that read; by default one for each core where there are many traces.

    Raises:
        InputError: a path that does not exist, or a folder without a trace.
        UsageError: fewer than two ranks can be read.
    """
    names, passed = _names(sources)
    if len(names) < 2:
        raise UsageError("ranks are compared with each other: give the traces of two or more, or their folder")
    found: list[tuple[str, RankSummary]] = []
    unreadable: list[tuple[str, str]] = []
    for name, answer in zip(names, _all(names, cache, workers), strict=True):
        if isinstance(answer, RankSummary):
            found.append((name, answer))
        else:
            unreadable.append((name, answer))
    kept, twice = _once(found)
    if len(kept) < 2:
        raise UsageError(_too_few(unreadable, twice))
    kept.sort(key=lambda pair: pair[1].rank)
    numbers = {one.rank for _, one in kept}
    world = max(one.world for _, one in kept)
    missing = sorted(set(range(world)) - numbers) if -1 not in numbers else []
    return RanksRead([one for _, one in kept], [name for name, _ in kept], passed, unreadable, twice, missing)


def _names(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    names: dict[str, None] = {}
    passed: list[str] = []
    for source in sources:
        found = {str(one.path or one.name): None for one in resolve(source, every=True)}
        names |= found
        if Path(source).is_dir():
            folders = {Path(name).parent for name in found}
            beside = {path for folder in folders for path in folder.iterdir() if path.is_file()}
            passed += sorted(path.name for path in beside if str(path) not in found and not path.name.startswith("."))
    return list(names), passed


def _all(names: Sequence[str], cache: bool, workers: int | None) -> Iterable[RankSummary | str]:
    workers = workers or (os.cpu_count() or 1 if len(names) >= _POOL_FROM else 1)
    if workers == 1:
        return (summary_of(name, cache=cache) for name in names)
    return summaries(names, cache=cache, workers=min(workers, len(names)))


def _once(found: Sequence[tuple[str, RankSummary]]) -> tuple[list[tuple[str, RankSummary]], list[tuple[str, str]]]:
    """Each rank once: the same recording, or another one of a rank that is there already, is left out."""
    kept: list[tuple[str, RankSummary]] = []
    twice: list[tuple[str, str]] = []
    for name, one in found:
        other = next(
            (
                known
                for known, rank in kept
                if (rank.digest and rank.digest == one.digest) or (rank.rank == one.rank and rank.rank >= 0)
            ),
            None,
        )
        if other is None:
            kept.append((name, one))
        else:
            twice.append((name, other))
    return kept, twice


def _too_few(unreadable: Sequence[tuple[str, str]], twice: Sequence[tuple[str, str]]) -> str:
    reasons = [reason for _, reason in unreadable]
    reasons += [f"{os.path.basename(name)} is of the same rank as {os.path.basename(other)}" for name, other in twice]
    return f"ranks are compared with each other, and fewer than two can be read: {'; '.join(reasons[:3])}"
