"""Where the time of a run on the CPU goes: operators by what they were called with, and what lies between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.measure.kernel.flops import work_of
from lanewise.measure.launch.bubbles import loader_rows
from lanewise.trace.intervals import covered, subtract, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["CpuTime", "measure_cpu"]

# A program has some hundred different calls; the rest is not worth a row.
_MOST = 1_000

# Below this share of its duration an operator leaves the work to those that it calls.
_ITSELF_FROM = 0.8

# As torch spells types for its users.
_TYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long int": "int64",
    "int": "int32",
}


@dataclass(frozen=True, eq=False)
class CpuTime:
    """Time of a run without device work, over its steady steps; ns.

    Attributes:
        operators: columns `operator, event, dtype, matrix, calls, time, best, share, flops, flop_rate`, by time: own time
            of the calls of an operator with the same arguments; `event` is one of them, `best` the least that one of
            them takes, `share` that of all operators' own time, `flops` of one call and per second (NaN where there is
            no formula, no shapes, or other operators do the work), `matrix` whether it is a product, a convolution or
            attention.
        steps: columns `number, duration, operators, inside`: of every step its length, its operators, and the time in
            which any of them runs.
        inside: share of the steady steps in which an operator runs.
        loading: share of the steady steps in which the program fetches its next batch from a DataLoader, and no operator
            runs.
        above_best: share of the operators' own time that is above what the same calls take at their best.
    """

    operators: Columns
    steps: Columns
    inside: float
    loading: float
    above_best: float


def measure_cpu(facts: Core) -> CpuTime:
    """Measure where the host's time goes."""
    trace, steady = facts.trace, facts.steps.steady
    events = trace.of(Kind.OPERATOR)
    time = union(trace.start[events], trace.end[events])
    start, end = trace.steps.start, trace.steps.end
    inside = covered(time, start, end)
    step = trace.steps.of_event[events]
    steps = Columns(
        {
            "number": trace.steps.number,
            "duration": end - start,
            "operators": np.bincount(step[step >= 0], minlength=len(start)),
            "inside": inside,
        }
    )
    length = int((end - start)[steady].sum())
    operators = _operators(facts, events)
    above = float((operators["time"] - operators["calls"] * operators["best"]).sum()) / max(1, operators["time"].sum())
    rows = loader_rows(facts)
    loader = covered(subtract(union(trace.start[rows], trace.end[rows]), time), start, end)
    within, loading = (float(part[steady].sum()) / length if length else 0.0 for part in (inside, loader))
    return CpuTime(operators, steps, within, loading, above)


def _operators(facts: Core, events: np.ndarray) -> Columns:
    trace = facts.trace
    events = facts.steady_events(events)
    example, group = facts.signatures.groups(events)
    own = facts.host.self_time[events]
    total = max(1, int(own.sum()))
    time = np.bincount(group, weights=own, minlength=len(example)).astype(np.int64)
    calls = np.bincount(group, minlength=len(example))
    best = np.full(len(example), np.iinfo(np.int64).max)
    np.minimum.at(best, group, own)
    whole = np.bincount(group, weights=trace.duration[events], minlength=len(example))
    itself = time >= _ITSELF_FROM * whole
    order = np.argsort(-time, kind="stable")[:_MOST]
    name, dtype = np.empty(len(order), dtype=object), np.empty(len(order), dtype=object)
    flops = np.full(len(order), math.nan)
    for row, at in enumerate(order.tolist()):
        event = int(example[at])
        call = facts.signatures.of(event)
        name[row] = trace.name_of(event)
        work = work_of(name[row], call)
        typed = next((tensor.dtype for tensor in call.tensors if tensor.dtype), "") if call else ""
        spelled = work.dtype if work and work.dtype else typed
        dtype[row] = _TYPES.get(spelled, spelled)
        if work is not None and work.executed and itself[at]:
            flops[row] = work.executed
    time, calls = time[order], calls[order]
    rate = np.where(time > 0, flops * calls / np.maximum(time, 1) * 1e9, math.nan)
    return Columns(
        {
            "operator": name,
            "event": example[order].astype(np.int64),
            "dtype": dtype,
            "matrix": facts.matrix_names[trace.name[example[order]]],
            "calls": calls,
            "time": time,
            "best": best[order],
            "share": time / total,
            "flops": flops,
            "flop_rate": rate,
        }
    )
