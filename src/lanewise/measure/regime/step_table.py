"""One row per step: how long it took on the host and on the device, what it launched, and which steps are steady."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.intervals import covered
from lanewise.measure.regime.time_classes import CLASSES, WORK, TimeClasses
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["StepTable", "compile_rows", "measure_steps"]


@dataclass(frozen=True, eq=False)
class StepTable:
    """Steps and what follows from them.

    Attributes:
        table: columns `number, host_start, host_duration, period, busy, device_time, kernels, copies, launches, waits,
            wait_time, ` and one column per time class; times in ns.
        steady: steps that statistics use: not the first recorded one (slow even in warm programs), not those that
            compile (MEA106); bool, shape (steps,).
        period_ns: median period of the steady steps as recorded; ns.
        step_ns: the step time that percentages refer to: without the profiler if known, else `period_ns`.
        rebased: whether `step_ns` is the un-profiled time.
        class_ns: ns per class in a typical steady step, rebased so that they sum to `step_ns`.
        host_scale: host time without the profiler over host time as recorded; 1 where the former is not known. Host
            costs read off the trace are inflated by its inverse.
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


def measure_steps(
    trace: Trace,
    classes: TimeClasses,
    *,
    waiting: np.ndarray,
    launch_calls: np.ndarray,
    compiling: np.ndarray,
    unprofiled_ns: int | None,
) -> StepTable:
    """Measure the steps of a trace.

    Args:
        waiting: whether each event is a call in which the host waits. launch_calls, compiling: events.
        unprofiled_ns: step time without a profiler, ns, if known: the host's share is then counted from it.
    """
    steps = trace.steps
    count = len(steps)
    has_device = classes.device != ""
    period = np.diff(np.concatenate((classes.window_start[:1], classes.window_end)))
    if not has_device:
        period = steps.end - steps.start

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

    steady = _steady(trace, compiling, count)
    chosen = steady if steady.any() else np.ones(count, dtype=bool)
    period_ns = float(np.median(period[chosen])) if count else 0.0
    class_ns = _class_means(classes.of_step[chosen], period_ns) if has_device and count else {}
    step_ns, rebased, host_scale = period_ns, False, 1.0
    if unprofiled_ns and has_device:
        # The device does the same work without the profiler; what shrinks is the host's share (diagnoses.md section 1).
        rest = sum(class_ns.values()) - class_ns["host"] - class_ns["unknown"]
        recorded_host = class_ns["host"] + class_ns["unknown"]
        class_ns["host"] = max(0.0, unprofiled_ns - rest)
        host_scale = min(1.0, class_ns["host"] / recorded_host) if recorded_host else 1.0
        class_ns["unknown"] = 0.0
        step_ns, rebased = float(unprofiled_ns), True
    elif unprofiled_ns:
        step_ns, rebased = float(unprofiled_ns), True
    return StepTable(Columns(columns), steady, period_ns, step_ns, rebased, class_ns, host_scale)


def _class_means(of_step: np.ndarray, period_ns: float) -> dict[str, float]:
    """Time of the classes in a typical step; they sum to the median period.

    The device's work is its own median: it does not shrink where a few steps wait so long that work is a small part of
    the sum of all steps. Within work and within idle time, classes have the shares that they have over all steps.
    """
    is_work = np.array([name in WORK for name in CLASSES])
    work_ns = float(np.median(of_step[:, is_work].sum(axis=1)))
    result = np.zeros(len(CLASSES))
    for chosen, whole in ((is_work, work_ns), (~is_work, max(0.0, period_ns - work_ns))):
        total = of_step[:, chosen].sum()
        result[chosen] = of_step[:, chosen].sum(axis=0) / total * whole if total else 0.0
    scale = period_ns / result.sum() if result.sum() else 0.0
    return dict(zip(CLASSES, (result * scale).tolist(), strict=True))


def _steady(trace: Trace, compiling: np.ndarray, count: int) -> np.ndarray:
    """All but the first recorded step and those in which something compiles, unless compiling is the normal state."""
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
