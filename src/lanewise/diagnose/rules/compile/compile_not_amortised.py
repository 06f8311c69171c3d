"""CMP103."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.rules.compile.nothing_to_fuse import fused_operators
from lanewise.measure.columns import sums
from lanewise.measure.compile.compilation import compile_time_of_step
from lanewise.measure.facts import Facts
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import CALLS, HOST, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, text, time
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest


@rule(
    "CMP103",
    "compile-not-amortised",
    regimes=("host",),
    title="{region} spends {host} of host time per call to start {ops}; eager operators would cost about {eager}.",
)
def compile_not_amortised(facts: Facts, *, ops_below: int = 5, eager_op_us: float = 25.0) -> Outcome:
    """The compiled region is too small for what entering it costs.

    Every call of a compiled function looks up its cache, checks guards and runs wrappers, in Python. For a region of a
    few kernels that is more host time than the operators would have cost, and in a host-bound program it is all that
    counts: the device was idle before and is idle now.

    Costs: the host time of lookup and region, less what the same number of eager operators would cost. An eager
    operator is taken from the operators outside the regions or, without any, to cost 25 us under the profiler. An eager
    recording of the same program gives the true difference.

    Fix: leave this part eager, compile a larger region around it, or add `mode="reduce-overhead"`.

    Verify: the step time without the profiler, compiled against eager.

    Silent: when the device is the bottleneck, where a region starts five device ops or more per call, while it
    compiles, and where a kernel fuses several operators: its name lists each once, however often it ran (ninety
    operators became one kernel that lists three, and 681 us became 45 us), so their eager cost is not in this trace.

    Source: huggingface/blog torch-profiler; 220 against 56 us per step on our H100.
    """
    trace, regions = facts.trace, facts.regions
    if len(regions.region) == 0:
        return NotApplicable("no compiled region")
    if compile_time_of_step(facts)[facts.steps.steady].any():
        return NotApplicable("steady steps compile (CMP102)")
    outer = facts.steady_events(regions.region[regions.parent < 0])
    if len(outer) == 0:
        return Clear("no region runs in steady steps")
    eager = _eager_cost(facts, eager_op_us * 1e3)
    ops, fused = _device_ops(facts, outer), _fuses(facts, outer)
    rows: list[dict[str, float | str]] = []
    small, keeps = [], []
    lookup = _lookup_cost(facts)
    for name in np.unique(trace.name[outer]).tolist():
        mine = outer[trace.name[outer] == name]
        per_call = float(ops[np.isin(outer, mine)].mean())
        host = float((trace.duration[mine] - facts.host.wait_inside[mine]).mean()) + lookup
        if per_call >= ops_below or host <= per_call * eager or fused[np.isin(outer, mine)].any():
            continue
        calls = len(mine) / facts.steady_count
        small.append(mine)
        keeps.append(np.full(len(mine), max(0.0, 1 - (host - per_call * eager) / float(trace.duration[mine].mean()))))
        rows.append(
            {
                "region": trace.names[int(name)],
                "calls": round(calls, 1),
                "ops": round(per_call, 1),
                "host": host,
                "eager": per_call * eager,
                "cost": (host - per_call * eager) * calls,
            }
        )
    if not rows:
        return Clear(f"no region starts fewer than {ops_below} device ops per call for more than eager operators cost")
    rows.sort(key=lambda row: -float(row["cost"]))
    worst = rows[0]
    events = np.concatenate(small)
    return Found(
        values={
            "region": text(str(worst["region"])),
            "host": time(float(worst["host"])),
            "ops": text(f"{worst['ops']:g} device op{'' if worst['ops'] == 1 else 's'}"),
            "eager": time(float(worst["eager"])),
            "regions": count(len(rows)),
        },
        change=cheaper(events, np.concatenate(keeps)),
        spread=0.3,
        confidence="low",
        fix=_REPLAYED if _replays(facts, events) else None,
        evidence=[
            table(
                "Small compiled regions",
                [
                    TableColumn("region", "text", "region"),
                    headed(CALLS, "calls per step"),
                    TableColumn("ops", "count", "device ops per call"),
                    headed(HOST, "host time per call, lookup included"),
                    TableColumn("eager", "time", "as eager operators"),
                    TableColumn("cost", "time", "difference per step"),
                ],
                rows,
            )
        ],
        location=locate(facts, int(events[0])),
        events=events.tolist(),
    )


_REPLAYED = (
    "Leave this part eager, or compile a larger region around it: what it starts is replayed as a CUDA graph already."
)


def _replays(facts: Facts, regions: np.ndarray) -> bool:
    """Whether any of the regions launches a graph."""
    graphs = facts.trace.links.calls("graph_launch")
    return bool((_holder(facts, regions, graphs) >= 0).any()) if len(graphs) else False


def _fuses(facts: Facts, outer: np.ndarray) -> np.ndarray:
    """Whether each outer region starts a kernel that replaces several operators."""
    trace, launch = facts.trace, facts.trace.links.launch
    names = np.unique(trace.name[trace.device_work])
    several = mask_of(
        len(trace.names) + 1, [int(name) for name in names if len(fused_operators(trace.names[int(name)])) > 1]
    )
    rows = np.flatnonzero(several[trace.name[trace.device_work]] & (launch >= 0))
    return np.isin(outer, _holder(facts, outer, launch[rows]))


def _holder(facts: Facts, outer: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """The outer region around each call, or -1."""
    mask = mask_of(len(facts.trace), outer)
    return nearest(facts.host.parent, mask, calls)


def _device_ops(facts: Facts, outer: np.ndarray) -> np.ndarray:
    """Device ops that each outer region starts, nodes of replayed graphs included."""
    trace, calls = facts.trace, facts.launches.call
    holder = _holder(facts, outer, calls)
    inside = holder >= 0
    return sums(holder[inside], trace.links.device_count_of_launch[calls[inside]], len(trace))[outer]


def _eager_cost(facts: Facts, default_ns: float) -> float:
    """Median host cost of launching operators outside every region; the default where there are fewer than five."""
    calls = facts.launches.call
    steady = facts.in_steady_step[calls]
    outside = steady & (facts.regions.within < 0) & (facts.host.outermost_operator[calls] >= 0)
    return float(np.median(facts.launches.host_cost[outside])) if outside.sum() >= 5 else default_ns


def _lookup_cost(facts: Facts) -> float:
    """Mean duration of a cache lookup in steady steps."""
    lookups = facts.steady_events(facts.regions.lookup)
    return float(facts.trace.duration[lookups].mean()) if len(lookups) else 0.0
