"""`Run`: what one recording did per step. Everything that a comparison looks at, and nothing else of the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.compare.environment import describe
from lanewise.compare.matching.labels import host_group, stable_name
from lanewise.compare.sides.step_work import Work, measure_work
from lanewise.report.model import Finding
from lanewise.trace.groups import mask_of
from lanewise.trace.metadata import Recorded, from_metadata
from lanewise.trace.schema import Kind
from lanewise.tree.build import build_tree
from lanewise.tree.model import Tree
from lanewise.tree.views import top_down

if TYPE_CHECKING:
    from lanewise.measure.facts import Facts
from lanewise.measure.regime.step_table import StepTable
from lanewise.measure.regime.time_classes import CLASSES

__all__ = ["STEP_SOURCES", "HostCost", "Run", "measure_run"]

STEP_SOURCES = ("profiler", "serving", "window")
"""What marks the steps of a trace; see `trace.windows.Steps`."""


class HostCost(NamedTuple):
    """Host time of one name per steady step, as recorded.

    Attributes:
        group: `compiler`, `operator`, `launch`, `wait` or `other call`.
        name: with what differs from run to run taken out.
        calls: per step.
        self_ns: time in it and in nothing below it, ns per step; the median of the steps.
    """

    group: str
    name: str
    calls: float
    self_ns: float


@dataclass(frozen=True, eq=False)
class Run:
    """One recording.

    Attributes:
        source, digest: the file and its content.
        recorded_at: wall clock of its beginning, ns; 0 if the file does not say.
        environment: what the times depend on besides the program, as text by name.
        step_source: what marks the steps, see `trace.windows.Steps`.
        steps: recorded steps; steady: those that statistics use.
        step_ns: step time, without the profiler if `unprofiled`; ns.
        samples: step times of which `step_ns` is the median, ns; empty where only the median is known.
        sample_ns: recorded periods of the steady steps, ns, shape (steady,).
        spread: of the steps, where single ones are not known, as the standard deviation of the log; 0 if unknown.
        classes: ns per class of time (`measure.idle.CLASSES`), summing to the step; empty without device work.
        regime: key of `measure.regime.REGIMES`. busy_share: of the step.
        host_scale: host time without the profiler over host time as recorded.
        work: the typical step's work.
        counts: per steady step: `launches`, `kernels`, `copies`, `waits`, and `wait_ns`.
        host: host time by name.
        memory_peak: most device memory allocated, bytes; -1 where not recorded.
        findings: what `explain` says about it.
        compiled, graphs, trains: whether steady steps enter compiled regions, replay graphs, run backward operators.
        partial: whether it comes from a report or a tree, which do not hold the work of a step.
        tree: contexts of the steady steps, if they were asked for; its costs are sums over these steps.
    """

    source: str
    digest: str
    recorded_at: int
    environment: dict[str, str]
    step_source: str
    steps: int
    steady: int
    step_ns: float
    unprofiled: bool
    samples: np.ndarray
    sample_ns: np.ndarray
    classes: dict[str, float]
    regime: str
    busy_share: float
    host_scale: float
    work: Work
    counts: dict[str, float]
    host: list[HostCost] = field(default_factory=list[HostCost])
    memory_peak: int = -1
    findings: list[Finding] = field(default_factory=list[Finding])
    compiled: bool = False
    graphs: bool = False
    trains: bool = False
    partial: bool = False
    tree: Tree | None = None
    spread: float = 0.0

    @property
    def device_ns(self) -> float:
        """Time of the typical step's work, added up, ns."""
        return float(np.median(self.work.duration.sum(axis=1))) if self.work.duration.size else 0.0


def measure_run(facts: Facts, findings: list[Finding], *, contexts: bool = False) -> Run:
    """Measure a trace for comparisons.

    Args:
        facts: of the trace; with the step time without the profiler if known.
        findings: of the same trace.
        contexts: whether to build its tree, too.
    """
    trace, table = facts.trace, facts.steps
    steady = table.steady
    chosen = table.table["period"][steady].astype(np.int64)
    recorded = from_metadata(trace.metadata)
    count = max(1, int(np.count_nonzero(steady)))
    rows = {name: float(table.table[name][steady].sum()) / count for name in ("launches", "kernels", "copies", "waits")}
    rows["wait_ns"] = float(table.table["wait_time"][steady].sum()) / count
    host = _host_costs(facts, count)
    return Run(
        source=trace.reading.source,
        digest=trace.reading.digest,
        recorded_at=trace.base_ns,
        environment=describe(facts, recorded),
        step_source=trace.steps.source,
        steps=len(trace.steps) if trace.steps.recorded else 0,
        steady=int(np.count_nonzero(steady)),
        # What nobody timed is compared as it was recorded: what was computed is no sample.
        step_ns=table.step_ns if table.rebased else table.period_ns,
        unprofiled=table.rebased,
        samples=_samples(facts, recorded) if table.rebased else chosen,
        sample_ns=chosen,
        classes=dict(table.class_ns) if table.rebased else _recorded_classes(table),
        regime=facts.regime.name,
        busy_share=facts.regime.busy_share if table.rebased else _recorded_busy(table),
        host_scale=table.host_scale if table.rebased else 1.0,
        work=measure_work(facts),
        counts=rows,
        host=host,
        memory_peak=_memory_peak(facts),
        findings=findings,
        compiled=any(cost.group == "compiler" for cost in host),
        graphs=bool(
            trace.links.graph_nodes[np.isin(trace.steps.of_event[trace.device_work], np.flatnonzero(steady))].any()
        ),
        tree=context_tree(facts) if contexts else None,
        trains=any("backward" in cost.name.lower() for cost in host if cost.group != "launch"),
    )


def _recorded_busy(table: StepTable) -> float:
    """Share of a steady step as recorded in which the device does anything."""
    busy = table.table["busy"][table.steady]
    return min(1.0, float(np.median(busy)) / table.period_ns) if len(busy) and table.period_ns else 0.0


def _recorded_classes(table: StepTable) -> dict[str, float]:
    """Time per class in a steady step as recorded, ns; sums to the median period."""
    total = {name: float(table.table[name][table.steady].sum()) for name in CLASSES}
    whole = sum(total.values())
    return {name: value * table.period_ns / whole for name, value in total.items()} if whole else {}


def context_tree(facts: Facts) -> Tree:
    """Places of the program in the steady steps: libraries folded, equal layers merged, backward under forward."""
    steps = facts.trace.steps
    numbers = steps.number[facts.steps.steady].tolist() if steps.recorded else None
    return top_down(build_tree(facts.trace, steps=numbers))


def _samples(facts: Facts, recorded: Recorded | None) -> np.ndarray:
    """The step times without the profiler, ns, if their median is the one in use; none if only that is known."""
    times = recorded.unprofiled if recorded is not None else None
    if times is None or not times.times_us or facts.unprofiled_ns != round(times.median_us * 1e3):
        return np.empty(0, np.int64)
    return np.round(np.array(times.times_us) * 1e3).astype(np.int64)


def _host_costs(facts: Facts, steady: int) -> list[HostCost]:
    """Self time and calls per step of every operator and API call in steady steps, the largest first."""
    trace, host = facts.trace, facts.host
    events = trace.of(Kind.ANNOTATION, Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)
    step = trace.steps.of_event[events]
    chosen = facts.is_steady(step)
    events, step = events[chosen], step[chosen]
    names, row = np.unique(trace.name[events], return_inverse=True)
    api = mask_of(len(names), row[np.isin(trace.kind[events], (Kind.RUNTIME, Kind.DRIVER))])
    keys: dict[tuple[str, str], int] = {}
    key_of = np.empty(len(names), dtype=np.int64)
    for at, name in enumerate(names.tolist()):
        group = _api_group(str(trace.links.role_of_name[name])) if api[at] else host_group(trace.names[name])
        key_of[at] = keys.setdefault((group, stable_name(trace.names[name])), len(keys))
    rank = np.cumsum(facts.steps.steady) - 1
    cell = key_of[row] * steady + rank[step]
    self_ns = np.bincount(cell, weights=host.self_time[events], minlength=len(keys) * steady)
    middle = np.median(self_ns.reshape(len(keys), steady), axis=1) if keys else np.empty(0)
    calls = np.bincount(key_of[row], minlength=len(keys)) / steady
    costs = [HostCost(group, name, float(calls[at]), float(middle[at])) for (group, name), at in keys.items()]
    return sorted(costs, key=lambda cost: (-cost.self_ns, cost.name))


def _api_group(role: str) -> str:
    if role in {"launch", "graph_launch", "copy", "set"}:
        return "launch"
    return "wait" if role == "wait" else "other call"


def _memory_peak(facts: Facts) -> int:
    """Most memory allocated at once on the device (on the host without one); -1 where it was not recorded."""
    memory = facts.trace["memory"]
    on_device = memory["device_id"] >= 0
    chosen = memory["allocated"][on_device if on_device.any() else memory["device_id"] == -1]
    return int(chosen.max(initial=-1))
