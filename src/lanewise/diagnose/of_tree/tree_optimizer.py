"""The optimizer step of a tree: the same numbers as `OptimizerStep` has of a trace, per step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.measure.training.optimizer_step import FOREACH, FUSED, GRADIENT, LOOP, MARK, OptimizerSums

__all__ = ["TreeOptimizer", "measure_tree_optimizer"]


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeOptimizer(OptimizerSums):
    """The optimizer step; `loop_frames` are contexts.

    Attributes:
        mark: its costliest context. inside: which contexts belong to it.
    """

    mark: int
    inside: np.ndarray


def measure_tree_optimizer(contexts: Contexts) -> TreeOptimizer | None:
    """Measure it; None where no optimizer step is marked."""
    marks = contexts.outermost(contexts.operators(MARK))
    if not marks.any():
        return None
    inside = contexts.within(marks)
    rows = np.flatnonzero(marks)
    kernels = inside & contexts.kernels
    multi = contexts.kernels_named(r"multi_tensor_apply|FusedOptimizer|fused_adam")

    def calls(pattern: str, where: np.ndarray | None = None) -> float:
        chosen = contexts.operators(pattern)
        return float(contexts.calls[chosen if where is None else chosen & where].sum())

    return TreeOptimizer(
        mark=int(rows[np.argmax(contexts.inside(contexts.host)[rows])]),
        inside=inside,
        host_ns=float(contexts.host[inside].sum()),
        device_ns=float(contexts.device[inside].sum()),
        launches=float(contexts.launches[inside].sum()),
        foreach=calls(FOREACH, inside),
        fused=calls(FUSED, inside),
        parameters=calls(GRADIENT),
        multi_tensor=bool((kernels & multi).any()),
        loop_frames=int(np.count_nonzero(contexts.frames(LOOP) & (contexts.inside(contexts.launches) > 0))),
    )
