"""`diff`: the public way to compare runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lanewise.compare.compare import compare_arms
from lanewise.compare.model import Comparison
from lanewise.compare.outcome.descriptions import plural
from lanewise.compare.sides.arm import Arm, short_labels
from lanewise.compare.sides.baseline import is_baseline, load_baseline
from lanewise.compare.sides.from_report import is_report, load_report
from lanewise.compare.sides.from_tree import load_tree, load_trees
from lanewise.compare.sides.run import Run, measure_run
from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.explain import facts_of
from lanewise.diagnose.settings import Settings
from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.trace.file.source import resolve
from lanewise.trace.model import Trace
from lanewise.trace.reader import read
from lanewise.tree.tree_file import is_tree

__all__ = ["Side", "arms_of", "diff", "diff_explained", "run_of"]

Side = str | os.PathLike[str] | Trace | Sequence[Trace]
"""A trace, a path to one, to a directory of repeated recordings, to a baseline or a report; or repeated recordings."""

# How far the profiler distorts and how much kernel times vary is what a comparison itself deals with.
_IGNORED = ("MEA105", "MEA107")
_ENDINGS = (".pt.trace.json.gz", ".json.gz", ".pt.trace.json", ".json", ".gz", ".trace", ".lwtree", ".lw")


def diff(
    *sides: Side,
    unprofiled_us: Sequence[float] = (),
    labels: Sequence[str] = (),
    anyway: bool = False,
    contexts: bool = False,
    settings: Settings | None = None,
) -> Comparison:
    """Compare runs; the first side is the base.

    Args:
        sides: two or more.
        unprofiled_us: step time of each side without a profiler, us, in their order; overrides what the recorder wrote.
        labels: what to call the sides; their file names by default.
        anyway: compare even what is not comparable (another card, type, size); the result says so.
        contexts: compare the places of the program as well.
        settings: which rules run on each side, and their thresholds.

    Raises:
        UsageError: sides that cannot be compared, with the reason. InputError: a file that cannot be read.
    """
    arms = arms_of(
        sides, unprofiled_us=unprofiled_us, labels=labels, read_trace=read, contexts=contexts, settings=settings
    )
    return compare_arms(arms, anyway=anyway)


def diff_explained(sides: Sequence[tuple[str, Facts, Report]]) -> Comparison:
    """Compare runs that are explained already, each with its label; even what is not comparable, which the result says."""
    arms = [Arm(label, [measure_run(facts, report.findings)]) for label, facts, report in sides]
    return compare_arms(arms, anyway=True)


def arms_of(
    sides: Sequence[Side],
    *,
    unprofiled_us: Sequence[float] = (),
    labels: Sequence[str] = (),
    read_trace: Callable[[str], Trace],
    contexts: bool = False,
    settings: Settings | None = None,
) -> list[Arm]:
    """The sides as arms; see `diff`. `read_trace` opens a file by its path."""
    for what, given in (("step time", unprofiled_us), ("label", labels)):
        if given and len(given) != len(sides):
            raise UsageError(f"{plural(len(given), what)} for {len(sides)} sides: give one for each, in their order")
    named = list(labels) or _told_apart(sides, short_labels([_name(side, place) for place, side in enumerate(sides)]))
    found: list[Arm] = []
    for place, (side, label) in enumerate(zip(sides, named, strict=True)):
        stored = _stored(side, label)
        us = unprofiled_us[place] if unprofiled_us else None
        if stored is not None:
            found.append(_narrowed(stored, settings))
            continue
        runs = [run_of(t, us, contexts=contexts, settings=settings) for t in _traces(side, read_trace)]
        found.append(Arm(label, runs))
    return found


def _stored(side: Side, label: str) -> Arm | None:
    """The arm in a file that lanewise wrote, or in a folder of trees; None for anything else."""
    if not isinstance(side, str | os.PathLike):
        return None
    path = Path(side)
    if path.is_dir():
        return load_trees(path, label)
    if not path.is_file():
        return None
    if is_baseline(path):
        return replace(load_baseline(path), label=label)
    if is_report(path):
        return load_report(path, label)
    return load_tree(path, label) if is_tree(path) else None


def _narrowed(arm: Arm, settings: Settings | None) -> Arm:
    """An arm with the findings that settings leave in: what a stored side was made with is not what is asked now."""
    if settings is None:
        return arm
    runs = [
        replace(r, findings=[f for f in r.findings if settings.names(f.code) or f.kind == "regime"]) for r in arm.runs
    ]
    return replace(arm, runs=runs)


def run_of(
    trace: Trace, unprofiled_us: float | None = None, *, contexts: bool = False, settings: Settings | None = None
) -> Run:
    """What a trace did per step.

    Args:
        unprofiled_us: step time without the profiler, if not the one in the trace, us.
        contexts: whether to build its tree as well.
        settings: which rules run, and their thresholds.
    """
    facts = facts_of(trace, unprofiled_us=unprofiled_us)
    settings = settings or Settings()
    settings = replace(settings, ignore=(*settings.ignore, *_IGNORED))
    return measure_run(facts, diagnose(facts, settings)[0], contexts=contexts)


def _traces(side: Side, read_trace: Callable[[str], Trace]) -> list[Trace]:
    if isinstance(side, Trace):
        return [side]
    if isinstance(side, str | os.PathLike):
        return [read_trace(str(source.path or source.name)) for source in resolve(side, every=True)]
    if not side:
        raise UsageError("a side without recordings: give at least one trace")
    return list(side)


def _told_apart(sides: Sequence[Side], names: list[str]) -> list[str]:
    """Names with their folders where two are equal, and with their place where that does not help."""
    if len(set(names)) < len(names):
        folders = [
            os.path.basename(os.path.dirname(os.path.abspath(s))) if isinstance(s, str | os.PathLike) else ""
            for s in sides
        ]
        names = [f"{folder}/{name}" if folder else name for folder, name in zip(folders, names, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} ({place})" for place, name in enumerate(names, 1)]
    return names


def _name(side: Side, place: int) -> str:
    if isinstance(side, str | os.PathLike):
        name = os.path.basename(os.fspath(side).rstrip("/")) or os.fspath(side)
    elif isinstance(side, Trace):
        name = os.path.basename(side.reading.source)
    else:
        name = os.path.basename(side[0].reading.source) if side else ""
    for ending in _ENDINGS:
        if name.endswith(ending):
            name = name[: -len(ending)]
            break
    return name or "ABCDEFGH"[place % 8]
