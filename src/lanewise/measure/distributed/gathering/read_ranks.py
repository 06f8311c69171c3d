"""Traces of a job -> summaries of its ranks, one trace in memory at a time for each process; what is left out, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lanewise.errors import InputError, UsageError
from lanewise.measure.distributed.gathering.executor import Executor
from lanewise.measure.distributed.gathering.one_job import newest_job
from lanewise.measure.distributed.gathering.processes import Processes
from lanewise.measure.distributed.gathering.rank_worker import decoded, encoded_summary, summary_of
from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.rank_summary import RankSummary, with_shared
from lanewise.trace.file.flight_dump import is_flight_dump
from lanewise.trace.file.source import resolve

__all__ = ["RanksRead", "read_ranks", "traces_of"]

_POOL_FROM = 8
"""Starting processes pays off from so many traces on."""

_TASK = f"{encoded_summary.__module__}:{encoded_summary.__name__}"
_OF_A_TRACE = (".report.json", ".ranks.json")
"""What `lanewise run` writes beside a trace."""


@dataclass(frozen=True)
class RanksRead:
    """What was read.

    Attributes:
        ranks: one summary for each rank, by number.
        files: the trace of each, in the same order.
        passed_over: names of files in the folder that are no traces.
        unreadable: traces that could not be read, with the reason in one line.
        twice: traces left out because another one is of the same rank: name, name of the other.
        earlier: traces left out because they are of a job before.
        missing: ranks of the job without a trace.
    """

    ranks: list[RankSummary]
    files: list[str]
    passed_over: list[str] = field(default_factory=list[str])
    unreadable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    twice: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    earlier: list[str] = field(default_factory=list[str])
    missing: list[int] = field(default_factory=list[int])


def read_ranks(
    sources: Sequence[str],
    *,
    cache: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RanksRead:
    """Read the ranks of a job.

    Args:
        sources: traces, or folders of them.
        cache: keep the summary of each, by the content of its trace; and a parsed copy of large ones.
        workers: processes that read; by default one for each core where there are many traces.
        executor: what reads them in place of processes of this machine.
        progress: told after each trace how many are done, and of how many.

    Raises:
        InputError: a path that does not exist, a folder without a trace, or fewer than two ranks that can be read.
        UsageError: fewer than two ranks are given.
    """
    names, passed = traces_of(sources)
    if len(names) < 2:
        none = f"; {' and '.join(passed[:3])} hold{'s' * (len(passed) == 1)} none" if passed else ""
        raise UsageError(f"ranks are compared with each other: give the traces of two or more, or their folder{none}")
    found: list[tuple[str, RankSummary]] = []
    unreadable: list[tuple[str, str]] = []
    contexts: dict[Context, Context] = {}
    for name, answer in zip(names, _all(names, cache, workers, executor), strict=True):
        if isinstance(answer, RankSummary):
            found.append((name, with_shared(answer, contexts)))
        else:
            unreadable.append((name, answer))
        if progress is not None:
            progress(len(found) + len(unreadable), len(names))
    if any(one.steps for _, one in found):
        # What is cut off before the end of a step says nothing of what the rank does in one.
        unreadable += [(name, "it holds no whole step") for name, one in found if not one.steps]
        found = [(name, one) for name, one in found if one.steps]
    job = newest_job(found)
    if len(job.ranks) < 2:
        raise (InputError if unreadable else UsageError)(_too_few(unreadable, job.twice))
    numbers = {one.rank for _, one in job.ranks}
    world = max(one.world for _, one in job.ranks)
    return RanksRead(
        ranks=[one for _, one in job.ranks],
        files=[name for name, _ in job.ranks],
        passed_over=passed,
        unreadable=unreadable,
        twice=job.twice,
        earlier=job.earlier,
        missing=sorted(set(range(world)) - numbers) if -1 not in numbers else [],
    )


def traces_of(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of the traces that the sources mean, and of files in their folders that are none. InputError as above."""
    names: dict[str, None] = {}
    passed: list[str] = []
    for source in sources:
        found = {str(one.path or one.name): None for one in resolve(source, every=True)}
        names |= found
        if Path(source).is_dir():
            folders = {Path(name).parent for name in found}
            beside = {path for folder in folders for path in folder.iterdir() if path.is_file()}
            passed += sorted(path.name for path in beside if str(path) not in found and not _is_ours(path))
    return list(names), passed


def _is_ours(path: Path) -> bool:
    return path.name.startswith(".") or path.name.endswith(_OF_A_TRACE) or is_flight_dump(path)


def _all(
    names: Sequence[str], cache: bool, workers: int | None, executor: Executor | None
) -> Iterable[RankSummary | str]:
    if executor is None:
        workers = workers or (os.cpu_count() or 1 if len(names) >= _POOL_FROM else 1)
        if workers == 1:
            return (summary_of(name, cache=cache) for name in names)
        executor = Processes(workers)
    return (decoded(answer) for answer in executor.each(_TASK, names, cache=cache))


def _too_few(unreadable: Sequence[tuple[str, str]], twice: Sequence[tuple[str, str]]) -> str:
    reasons = [reason for _, reason in unreadable]
    reasons += [f"{os.path.basename(name)} is of the same rank as {os.path.basename(other)}" for name, other in twice]
    return f"ranks are compared with each other, and fewer than two can be read: {'; '.join(reasons[:3])}"
