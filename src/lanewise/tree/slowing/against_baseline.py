"""A program that runs, held against trees of a baseline: another day, another version, another host.

The live side is what came between looks, as runs of their own: a place must be dearer in each of the last few than in every
tree of the baseline. Processes differ from each other in more than chance, which one of them cannot show: against a few
trees more is allowed than against many.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lanewise.errors import InputError, UsageError
from lanewise.tree.algebra import align
from lanewise.tree.fleet import as_runs, merge_fleet, trees_below
from lanewise.tree.model import Tree
from lanewise.tree.slowing.looks.processor_wait import CROWDED, ProcessorWait
from lanewise.tree.slowing.slowdown import Slowdown
from lanewise.tree.slowing.slower_contexts import RUNS, SlowerContext, slower_contexts
from lanewise.tree.watching.start_up import with_start_up
from lanewise.tree.watching.stretch import stretch

__all__ = ["WHOLE", "AgainstBaseline", "baseline_trees"]

INCREASE = 0.10
"""Allowed where the baseline is of `RUNS` trees or more."""
INCREASE_OF_FEW = 0.30
"""Allowed where it is of fewer; and of the step as a whole, by which processes differ most."""
WHOLE = "the whole step"

_LOOKS = 4
"""The last stretches, in each of which a place must be dearer."""
_LEAST_STEPS = 50
_LEAST_SECONDS = 1.0
_KNOWN = 0.5
"""Of the time, at places that the baseline has, from which on it is of the same program."""
_MOST = 20


def baseline_trees(source: Path) -> list[Tree]:
    """The tree in a file, or those in a folder; start-up left out.

    Raises:
        InputError: there is none, or it cannot be read. UsageError: one has no steps.
    """
    files = trees_below(source) if source.is_dir() else [source]
    if not files:
        raise InputError(f"{source} holds no trees of `lanewise watch`")
    parts = as_runs(files)
    trees = [with_start_up(merge_fleet(part).tree, "out") for part in parts]
    for tree, part in zip(trees, parts, strict=True):
        if not tree.info.step_count:
            raise UsageError(f"{part[0]} has no steps to compare with: watch it with --step-on FN")
    return trees


class AgainstBaseline:
    """Looks at the tree of a running program from time to time.

    Args:
        source: a tree file, or a folder of them; read at the first look. told: is called with each place that is slower,
            once. log: is told what is wrong with the baseline.
    """

    def __init__(self, source: Path, told: Callable[[Slowdown], None], log: Callable[[str], None]) -> None:
        self._source, self._told, self._log = source, told, log
        self._baseline: list[Tree] = []
        self._last: Tree | None = None
        self._stretches: deque[Tree] = deque(maxlen=_LOOKS)
        self._named: set[tuple[tuple[str, ...], str]] = set()
        self._over = False
        # Whose number the process has makes the steps, of most programs.
        self._processor = ProcessorWait(os.getpid())
        self._waited = self._looked = 0

    def look(self, tree: Tree) -> None:
        """The tree so far. Never raises: what is wrong with the baseline ends the looking."""
        try:
            if not self._over and time.monotonic_ns() - self._looked >= _LEAST_SECONDS * 1e9:
                self._look(tree)
        except Exception as error:
            self._over = True
            self._processor.close()
            self._log(f"not compared with {self._source}: {error}")

    def _look(self, tree: Tree) -> None:
        if not self._baseline:
            self._baseline = baseline_trees(self._source)
        last = self._last
        # In the first step its start-up is not told apart yet.
        if _steps(tree) < 2 or (last is not None and _steps(tree) - _steps(last) < _LEAST_STEPS):
            return
        self._last = tree
        if self._crowded() or last is None:
            return
        self._stretches.append(with_start_up(stretch(tree, last), "out"))
        if len(self._stretches) == _LOOKS:
            self._is_of_this_program(self._stretches[0])
            self._compare()

    def _crowded(self) -> bool:
        """Whether other programs took the processor away since the last look."""
        looked, waited = self._looked, self._waited
        self._looked, self._waited = time.monotonic_ns(), self._processor.ns()
        return self._waited - waited > CROWDED * (self._looked - looked)

    def _is_of_this_program(self, live: Tree) -> None:
        """UsageError if most of the time goes to places that the baseline does not have."""
        theirs, ours = align([self._baseline[0], live]).metrics
        known = int(ours["host"][theirs["host"] > 0].sum()) / max(1, live.total("host"))
        if known < _KNOWN:
            raise UsageError(f"it is of another program, which has the places of {known:.0%} of this one's time")

    def _compare(self) -> None:
        live = list(self._stretches)
        allowed = INCREASE if len(self._baseline) >= RUNS else INCREASE_OF_FEW
        for place in [*self._as_a_whole(live), *slower_contexts(self._baseline, live, increase=allowed, runs=1)]:
            if (place.path, place.what) not in self._named and len(self._named) < _MOST:
                self._named.add((place.path, place.what))
                self._told(self._slowdown(place, live))

    def _as_a_whole(self, live: list[Tree]) -> list[SlowerContext]:
        """What all places together are slower by, which is taken out before places are compared."""
        before, after = _per_step(self._baseline), _per_step(live)
        if min(after) <= max(before) * (1 + INCREASE_OF_FEW):
            return []
        old, new = float(np.median(before)), float(np.median(after))
        return [SlowerContext((WHOLE,), "", 0, "", "host time", old, new, True)]

    def _slowdown(self, place: SlowerContext, live: list[Tree]) -> Slowdown:
        seen = live[-1].info.watched.steps_seen if live[-1].info.watched is not None else 0
        return Slowdown(
            path=place.path,
            file=place.file,
            line=place.line,
            function=place.function,
            what=place.what,
            before=round(place.before, 3),
            after=round(place.after, 3),
            at=seen,
            against=self._source.name,
        )


def _steps(tree: Tree) -> int:
    return tree.info.step_count


def _per_step(trees: list[Tree]) -> list[float]:
    return [tree.total("host") / max(1, tree.info.step_count * max(1, tree.info.runs)) for tree in trees]
