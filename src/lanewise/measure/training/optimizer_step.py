"""The optimizer step: how it walks the parameters, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.intervals import union
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["FOREACH", "FUSED", "GRADIENT", "LOOP", "MARK", "OptimizerStep", "OptimizerSums", "measure_optimizer"]

# Names of rows: the annotation, multi-tensor and fused operators, a frame of the loop, a gradient that is accumulated.
MARK = r"^Optimizer\.step#"
FOREACH = r"^aten::_foreach_"
FUSED = r"^aten::_fused_|FusedAdam|fused_adam|multi_tensor_adam"
LOOP = r"_single_tensor_"
GRADIENT = r"^(?:struct )?torch::autograd::AccumulateGrad$"


@dataclass(frozen=True, eq=False, kw_only=True)
class OptimizerSums:
    """What is known of `Optimizer.step#<class>.step` in a trace as in a tree; numbers are per step.

    Attributes:
        host_ns: host time without waits; device_ns: device time of what it launches.
        launches, foreach, fused, parameters: launches, `_foreach_*` operators, `_fused_*` operators, gradients
            accumulated (0 if the recording shows no backward).
        multi_tensor: whether a kernel that handles many tensors at once runs.
        loop_frames: Python frames of the for-loop implementation, over the whole recording.
    """

    host_ns: float
    device_ns: float
    launches: float
    foreach: float
    fused: float
    parameters: float
    multi_tensor: bool
    loop_frames: int


@dataclass(frozen=True, eq=False, kw_only=True)
class OptimizerStep(OptimizerSums):
    """The optimizer step in steady steps.

    Attributes:
        marks: the annotations.
        calls: launching calls inside them.
    """

    marks: np.ndarray
    calls: np.ndarray


def measure_optimizer(facts: Core) -> OptimizerStep | None:
    """Measure it; None where no optimizer step is marked in steady steps."""
    trace, host = facts.trace, facts.host
    marks = trace.of(Kind.ANNOTATION, Kind.OPERATOR)
    if len(marks):
        marks = marks[trace.name_mask(MARK)[trace.name[marks]] & facts.in_steady_step[marks]]
    if len(marks) == 0:
        return None
    steps = facts.steady_count
    inside = mask_of(len(trace), marks)

    def under(events: np.ndarray) -> np.ndarray:
        return events[nearest(host.parent, inside, events) >= 0] if len(events) else events

    calls = under(facts.launches.call)
    operators = trace.of(Kind.OPERATOR)
    foreach = trace.name_mask(FOREACH)[trace.name[operators]]
    fused = trace.name_mask(FUSED)[trace.name[operators]]
    gradients = trace.name_mask(GRADIENT)[trace.name[operators]]
    gradients &= facts.in_steady_step[operators]
    rows = np.isin(trace.links.launch, calls) & (trace.links.launch >= 0)
    work = trace.device_work[rows]
    frames = trace.of(Kind.PYTHON)
    loops = trace.name_mask(LOOP)[trace.name[frames]] if len(frames) else frames > 0
    span = union(trace.start[marks], trace.end[marks]).total
    return OptimizerStep(
        marks=marks,
        calls=calls,
        host_ns=(span - float(host.wait_inside[marks].sum())) / steps,
        device_ns=float(trace.duration[work].sum()) / steps,
        launches=len(calls) / steps,
        foreach=len(under(operators[foreach])) / steps,
        fused=len(under(operators[fused])) / steps,
        parameters=float(np.count_nonzero(gradients)) / steps,
        multi_tensor=bool(facts.is_family("optimizer", "foreach")[rows].any()),
        loop_frames=int(np.count_nonzero(loops)),
    )
