"""A tree file as one side of a comparison: places of the program with their costs, and nothing about time in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lanewise.compare.sides.arm import Arm
from lanewise.compare.sides.run import Run
from lanewise.compare.sides.step_work import Work
from lanewise.tree.tree_file import load
from lanewise.tree.views import merge_layers, top_down

__all__ = ["load_tree"]


def load_tree(path: Path, label: str) -> Arm:
    """The arm in a tree file. Errors as `lanewise.tree.tree_file.load` raises them."""
    tree = merge_layers(top_down(load(path)))
    steps = max(1, tree.info.step_count) * max(1, tree.info.runs)
    nothing = np.empty(0, np.int64)
    return Arm(
        label,
        [
            Run(
                source=tree.info.source or path.name,
                digest="",
                recorded_at=0,
                environment={"card": tree.info.devices[0]} if tree.info.devices else {},
                step_source="profiler" if tree.info.step_count else "window",
                steps=tree.info.step_count,
                steady=steps if tree.info.step_count else 0,
                step_ns=0.0,
                unprofiled=False,
                samples=nothing,
                sample_ns=nothing,
                classes={},
                regime="undetermined",
                busy_share=0.0,
                host_scale=1.0,
                work=Work([], nothing, np.empty((0, 0), np.int64), 0, tree.total("device") > 0),
                counts={
                    "launches": tree.total("launches") / steps,
                    "kernels": float(tree.metrics["count"][tree.leaf].sum()) / steps,
                },
                partial=True,
                tree=tree,
            )
        ],
    )
