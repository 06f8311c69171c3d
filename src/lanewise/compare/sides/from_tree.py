"""Tree files as a side of a comparison: places of the program with their costs, and nothing about time in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import Run
from lanewise.compare.sides.step_work import Work
from lanewise.compare.statistics import log_spread
from lanewise.diagnose.of_tree.ranked_contexts import diagnose_tree
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.tree.fleet import as_runs, collected, merge_fleet, trees_below
from lanewise.tree.model import Tree
from lanewise.tree.tree_file import load
from lanewise.tree.views import top_down

__all__ = ["load_tree", "load_trees"]


def load_trees(folder: Path, label: str) -> Arm | None:
    """The arm of all trees in a folder and the folders in it; None if there are none. InputError as of `merge_fleet`, and
    of `collected`."""
    files = trees_below(folder)
    if not files:
        return None
    return Arm(label, [_run(merge_fleet(part).tree, str(part[0])) for part in as_runs(files)])


def load_tree(path: Path, label: str) -> Arm:
    """The arm in a tree file, its start-up left out. Errors as `lanewise.tree.tree_file.load` raises them,
    and InputError as of `collected`."""
    return Arm(label, [_run(load(path), path.name)])


def _run(whole: Tree, name: str) -> Run:
    contexts = Contexts(collected(whole, name))
    findings, _ = diagnose_tree(contexts)
    tree = top_down(contexts.tree)
    steps, nothing = contexts.steps, np.empty(0, np.int64)
    # Without steps, or without the time between operators, there is no step to take a time of.
    known = contexts.times_python and contexts.marked
    step = contexts.step if known else None
    return Run(
        source=tree.info.source or name,
        digest="",
        recorded_at=0,
        environment={"card": tree.info.devices[0]} if tree.info.devices else {},
        step_source="profiler" if contexts.marked else "window",
        steps=tree.info.step_count,
        steady=steps if contexts.marked else 0,
        step_ns=step.ns if step else 0.0,
        unprofiled=step is not None and contexts.unwatched,
        samples=nothing,
        sample_ns=np.array([step.recorded], dtype=np.int64) if step else nothing,
        spread=_spread(tree),
        classes={name: part * step.ns for name, part in contexts.shares.items()} if step else {},
        regime=contexts.regime,
        busy_share=1.0 - contexts.shares.get("host", 1.0) if step else 0.0,
        host_scale=1.0,
        work=Work([], nothing, np.empty((0, 0), np.int64), 0, tree.total("device") > 0),
        counts={
            "launches": round(tree.total("launches") / steps, 1),
            "kernels": round(float(tree.metrics["count"][tree.leaf].sum()) / steps, 1),
        },
        findings=findings,
        partial=True,
        tree=tree,
    )


def _spread(tree: Tree) -> float:
    """How far stretches of the run differ in time per step, as the standard deviation of the log; 0 if unknown."""
    history = tree.info.watched.history if tree.info.watched is not None else ()
    return log_spread([np.array([one.ns / one.steps for one in history if one.steps > 0 and one.ns > 0])])
