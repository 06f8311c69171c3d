"""The optimizer step of a tree: the same numbers as `OptimizerStep` has of a trace, per step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.diagnose.of_tree.tree_facts import Contexts

__all__ = ["TreeOptimizer", "measure_tree_optimizer"]

_MARK = r"^Optimizer\.step#"
_FUSED = r"^aten::_fused_|FusedAdam|fused_adam|multi_tensor_adam"
_LOOP = r"_single_tensor_"
_GRADIENT = r"^(?:struct )?torch::autograd::AccumulateGrad$"


@dataclass(frozen=True, eq=False)
class TreeOptimizer:
    """`Optimizer.step#<class>.step`; numbers are per step.

    Attributes:
        mark: its costliest context. inside: which contexts belong to it.
        host_ns, device_ns, launches, foreach, fused, parameters, multi_tensor: as in `OptimizerStep`.
        loop_frames: contexts of the for-loop implementation.
    """

    mark: int
    inside: np.ndarray
    host_ns: float
    device_ns: float
    launches: float
    foreach: float
    fused: float
    parameters: float
    multi_tensor: bool
    loop_frames: int


def measure_tree_optimizer(contexts: Contexts) -> TreeOptimizer | None:
    """Measure it; None where no optimizer step is marked."""
    marks = contexts.outermost(contexts.operators(_MARK))
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
        foreach=calls(r"^aten::_foreach_", inside),
        fused=calls(_FUSED, inside),
        parameters=calls(_GRADIENT),
        multi_tensor=bool((kernels & multi).any()),
        loop_frames=int(np.count_nonzero(contexts.frames(_LOOP) & (contexts.inside(contexts.launches) > 0))),
    )
