"""What a watched program did before its first step had ended: imports, first calls, compilation.

A collected tree keeps it below a root of its own, with the contexts, modules and phases that it would have elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from lanewise.tree.forest import nearest_marked
from lanewise.tree.model import NodeKind, Tree
from lanewise.tree.rebuild import drop_empty, rebuild, with_metrics

__all__ = ["START_UP_MARK", "StartUp", "start_up_of", "with_start_up"]

START_UP_MARK = "<start-up>"

StartUp = Literal["out", "apart", "in"]


def start_up_of(tree: Tree) -> np.ndarray:
    """Which contexts belong to the start-up, shape (nodes,)."""
    return nearest_marked(tree.parent, _mark(tree)) >= 0


def with_start_up(tree: Tree, how: StartUp) -> Tree:
    """A tree without the start-up ("out"), with it below its own root ("apart"), or as part of the rest ("in").

    It stays "apart" rather than "out" where the program did nothing else.
    """
    mark = _mark(tree)
    if how == "apart" or not mark.any():
        return tree
    if how == "in":
        below = mark[np.maximum(tree.parent, 0)] & (tree.parent >= 0)
        # The mark itself costs nothing.
        return drop_empty(rebuild(tree, parent=np.where(below, -1, tree.parent), keep_forward=True))
    counts = ~start_up_of(tree)
    rest = with_metrics(tree, counts)
    if not any(rest.metrics[name].any() for name in ("calls", "host", "device")):
        return tree
    changes: dict[str, object] = {"device_total": rest.total("device")}
    if (watched := tree.info.watched) is not None:
        early = watched.start_up_steps
        changes["watched"] = replace(
            watched, steps_watched=max(watched.steps_watched - early, 0), steps_seen=watched.steps_seen - early
        )
    return drop_empty(rest).with_info(**changes)


def _mark(tree: Tree) -> np.ndarray:
    named = np.array([text == START_UP_MARK for text in tree.strings], dtype=bool)
    return named[tree.name] & (tree.kind == NodeKind.MARK) & (tree.parent < 0)
