"""Which places of a program take longer than in a baseline: trees of several runs on either side, node by node.

Processes that run the same program differ by some ten percent, all of it at once. So what most of the program has become
slower by is taken out first, and a time counts only where every run of one side is beyond every run of the other: four runs
a side at least. How often a context is entered in a step is exact, and one run is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from lanewise.errors import UsageError
from lanewise.trace.groups import weighted_median
from lanewise.tree.algebra import align
from lanewise.tree.forest import nearest_marked, subtree_sums
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.views import user_frames

__all__ = ["RUNS", "SlowerContext", "slower_contexts"]

RUNS = 4
"""Runs on either side from which on a time can be decided."""

_WORTH = 0.02
"""Of the step: less is not worth an alert."""
_EXPLAINS = 0.7
"""Of what a place has become slower by, from which on one inside of it is the one to name."""
_STEPS = 10
"""Steps in a run from which on a number of calls per step is one."""
_PLACES = (NodeKind.FRAME, NodeKind.MODULE, NodeKind.ANNOTATION, NodeKind.OPERATOR, NodeKind.KERNEL, NodeKind.COPY)


@dataclass(frozen=True)
class SlowerContext:
    """One place that became dearer.

    Attributes:
        path: names from outside in, untrusted. file, line, function: the nearest function of the user's; "" and 0 where
            there is none.
        what: "host time", "device time" or "calls".
        before, after: per step, ns or a number; medians over the runs, `before` as fast as the machine is now.
        decided: whether the runs are enough to say so.
    """

    path: tuple[str, ...]
    file: str
    line: int
    function: str
    what: str
    before: float
    after: float
    decided: bool


def slower_contexts(
    before: Sequence[Tree], after: Sequence[Tree], *, increase: float, runs: int = RUNS
) -> list[SlowerContext]:
    """Places that take more than `increase` (0.1 for 10 %) longer, or are entered that much more often; dearest first.

    Args:
        before, after: trees of the runs of either side, with the same view of the program (start-up out).
        increase: what is allowed. runs: on either side, from which on a time can be decided.

    Raises:
        UsageError: a tree without steps, or a side without trees.
    """
    if not before or not after:
        raise UsageError("contexts are compared between trees: give trees of `lanewise watch` on both sides")
    if any(not tree.info.step_count for tree in (*before, *after)):
        raise UsageError("a tree without steps has nothing per step: watch it with --step-on FN")
    aligned = align([*before, *after])
    tree, split = aligned.tree, len(before)
    steps = np.array([each.info.step_count * max(1, each.info.runs) for each in (*before, *after)], dtype=np.float64)
    found: list[SlowerContext] = []
    step, host = 0.0, np.zeros(len(tree))
    for metric, what in (("host", "host time"), ("device", "device time")):
        own = np.stack([columns[metric] for columns in aligned.metrics]) / steps[:, None]
        own[:split] *= _drift(own[:split], own[split:])
        step = max(step, float(np.median(own[split:].sum(axis=1))))
        values = np.stack([subtree_sums(tree.parent, row) for row in own])
        host = np.maximum(host, np.median(values[split:], axis=0))
        found += _grown(tree, values, split, increase, what, least=_WORTH * step, runs=runs)
    calls = np.stack([columns["calls"] for columns in aligned.metrics]) / steps[:, None]
    calls = np.where(host >= _WORTH * step, calls, 0.0)
    exact = bool((steps >= _STEPS).all())
    return found + _grown(tree, calls, split, max(increase, 0.01), "calls", least=0.0, runs=1 if exact else runs)


def _drift(before: np.ndarray, after: np.ndarray) -> float:
    """What most of the program is slower by: the ratio below which half of the time is."""
    old, new = np.median(before, axis=0), np.median(after, axis=0)
    both = (old > 0) & (new > 0)
    if not both.any():
        return 1.0
    return weighted_median(new[both] / old[both], old[both])


def _grown(
    tree: Tree, values: np.ndarray, split: int, increase: float, what: str, *, least: float, runs: int
) -> list[SlowerContext]:
    """Contexts whose values (runs, nodes) have grown by more than is allowed, the innermost that explain it."""
    old, new = np.median(values[:split], axis=0), np.median(values[split:], axis=0)
    excess = new - old
    # A place that is new has no time to be slower than; its caller has.
    grown = np.isin(tree.kind, _PLACES) & (old > 0) & (new > old * (1 + increase)) & (excess > least)
    apart = values[split:].min(axis=0) > values[:split].max(axis=0) * (1 + increase)
    enough = min(split, len(values) - split) >= runs
    if enough:
        grown &= apart
    named = grown.copy()
    for node in np.flatnonzero(grown).tolist()[::-1]:
        at = int(tree.parent[node])
        while at >= 0:
            if grown[at] and excess[node] >= _EXPLAINS * excess[at]:
                named[at] = False
            at = int(tree.parent[at])
    rows = np.flatnonzero(named)
    own = user_frames(tree)
    frames = nearest_marked(tree.parent, own)
    return [
        SlowerContext(
            path=_path(tree, node, own),
            **_location(tree, int(frames[node])),
            what=what,
            before=float(old[node]),
            after=float(new[node]),
            decided=enough,
        )
        for node in rows[np.argsort(-excess[rows], kind="stable")].tolist()
    ]


def _path(tree: Tree, node: int, own: np.ndarray) -> tuple[str, ...]:
    """Names of modules, functions of the user's and the context itself; what only leads on is left out."""
    names: list[str] = []
    at = node
    while at >= 0:
        if at == node or tree.kind[at] == NodeKind.MODULE or own[at]:
            frame = tree.python_frame(at) if tree.kind[at] == NodeKind.FRAME else None
            names.insert(0, frame.function if frame is not None and frame.file else tree.label(at))
        at = int(tree.parent[at])
    return tuple(names)


def _location(tree: Tree, frame: int) -> _Location:
    if frame < 0:
        return {"file": "", "line": 0, "function": ""}
    parsed = tree.python_frame(frame)
    return {"file": parsed.file, "line": parsed.line, "function": parsed.function}


class _Location(TypedDict):
    file: str
    line: int
    function: str
