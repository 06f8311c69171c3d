"""One row per step: how long it took on the host and on the device, what it launched, and which steps are steady."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.regime.time_classes import CLASSES, TimeClasses
from lanewise.trace.intervals import covered
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.unprofiled import Unprofiled
    from lanewise.trace.model import Trace

__all__ = ["StepTable", "compile_rows", "measure_steps", "periods", "slow_among", "steady_steps"]

# A step that takes so many times the median one is slow; slow ones matter if they add this share of the time, among so
# many steps.
_SLOW_FROM, _EXCESS_FROM, _STEPS_FROM = 2.0, 0.20, 4


@dataclass(frozen=True, eq=False)
class StepTable:
    """Steps and what follows from them.

    Attributes:
        table: columns `number, host_start, host_duration, period, busy, device_time, kernels, copies, launches, waits,
            wait_time, ` and one column per time class; times in ns.
        steady: steps that statistics use: not the first recorded one (slow even in warm programs), not those that
            compile (MEA106); bool, shape (steps,).
        period_ns: median period of the steady steps as recorded, their mean where slow ones come again; ns.
        step_ns: the step time that percentages refer to: without the profiler, timed or computed.
        rebased: whether `step_ns` was timed.
        class_ns: ns per class in a step without the profiler; they sum to `step_ns`.
        host_scale: host time without the profiler over host time as recorded.
    """

    table: Columns
    steady: np.ndarray
    period_ns: float
    step_ns: float
    rebased: bool
    class_ns: dict[str, float]
    host_scale: float


def compile_rows(trace: Trace) -> np.ndarray:
    """Events that are compilation, autotuning or graph capture (MEA106, CMP102, LAU108)."""
    name = trace.name_mask(r" \(dynamo_timed\)$|_data: .*compile_id=|^CUDAGraphNode\.record")
    rows = np.flatnonzero(np.isin(trace.kind, (Kind.ANNOTATION, Kind.OPERATOR)) & name[trace.name]) if len(name) else []
    build = trace.links.calls("graph_build")
    return np.union1d(np.asarray(rows, dtype=np.int64), build)


def periods(trace: Trace, classes: TimeClasses) -> np.ndarray:
    """How long each step takes: from the end of the one before it on the device to its own; on the host without one; ns."""
    if not classes.device:
        return trace.steps.end - trace.steps.start
    return np.diff(np.concatenate((classes.window_start[:1], classes.window_end)))


def measure_steps(
    trace: Trace,
    classes: TimeClasses,
    *,
    waiting: np.ndarray,
    launch_calls: np.ndarray,
    steady: np.ndarray,
    unprofiled: Unprofiled,
) -> StepTable:
    """Measure the steps of a trace.

    Args:
        waiting: whether each event is a call in which the host waits. launch_calls: events.
        steady: which steps statistics use. unprofiled: the step without the profiler.
    """
    steps = trace.steps
    count = len(steps)
    period = periods(trace, classes)

    def per_step(events: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        step = steps.of_event[events]
        inside = step >= 0
        chosen = None if weights is None else weights[inside]
        return np.bincount(step[inside], weights=chosen, minlength=count).astype(np.int64)

    work = trace.device_work
    waits = np.flatnonzero(waiting)
    columns: dict[str, np.ndarray] = {
        "number": steps.number,
        "host_start": steps.start,
        "host_duration": steps.end - steps.start,
        "period": period,
        "busy": covered(classes.busy, classes.window_start, classes.window_end),
        "device_time": per_step(work, trace.duration[work]),
        "kernels": per_step(trace.of(Kind.KERNEL)),
        "copies": per_step(trace.of(Kind.MEMCPY, Kind.MEMSET)),
        "launches": per_step(launch_calls),
        "waits": per_step(waits),
        "wait_time": per_step(waits, trace.duration[waits]),
    }
    for column, name in enumerate(CLASSES):
        columns[name] = classes.of_step[:, column]

    chosen = steady if steady.any() else np.ones(count, dtype=bool)
    period_ns = float(np.median(period[chosen])) if count else 0.0
    if unprofiled.weighed:
        period_ns = float(period[chosen].mean())
    class_ns = unprofiled.class_ns
    if class_ns and not unprofiled.faithful:
        spent = classes.of_step[chosen].sum(axis=0) / max(1, int(classes.of_step[chosen].sum()))
        class_ns = {name: float(spent[i]) * unprofiled.step_ns for i, name in enumerate(CLASSES)}
    return StepTable(
        Columns(columns),
        steady,
        period_ns,
        unprofiled.step_ns,
        unprofiled.timed,
        class_ns,
        unprofiled.host_scale,
    )


def steady_steps(trace: Trace, compiling: np.ndarray) -> np.ndarray:
    """Which steps statistics use: all but the first recorded one and those in which something compiles, unless compiling is
    the normal state; bool, shape (steps,)."""
    count = len(trace.steps)
    steady = np.ones(count, dtype=bool)
    if not trace.steps.recorded or count < 2:
        return steady
    steady[0] = False
    step = trace.steps.of_event[compiling]
    compiles = np.bincount(step[step >= 0], minlength=count) > 0
    if compiles.sum() < count / 2:
        steady &= ~compiles
    # A schedule may end with a step in which nothing ran any more: no statistics from it.
    work = trace.steps.of_event[trace.device_work]
    working = np.bincount(work[work >= 0], minlength=count) > 0
    if working.any():
        steady &= working
    if not steady.any():
        steady = working if working.any() else np.arange(count) > 0
    return steady


def slow_among(period: np.ndarray, steady: np.ndarray) -> np.ndarray:
    """Which steady steps take more than twice as long as the median one, where all they take longer is a fifth of the
    time; bool, shape (steps,)."""
    nothing = np.zeros(len(period), dtype=bool)
    if np.count_nonzero(steady) < _STEPS_FROM:
        return nothing
    typical = float(np.median(period[steady]))
    slow = steady & (period > _SLOW_FROM * typical)
    excess = float((period[slow] - typical).sum())
    return slow if typical > 0 and excess > _EXCESS_FROM * float(period[steady].sum()) else nothing
