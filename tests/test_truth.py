"""Our tables against torch's own `key_averages` of the same runs, and where torch's double counts are not repeated.

Known differences, each asserted rather than tolerated:
- torch adds the projection of an annotation on the device lane to device time; ours never does;
- torch counts an operator and its only child of the same name as one call; ours counts rows;
- torch adds up an operator that calls itself twice over; ours counts the outer call once;
- torch books overhead rows as operators, with device time of the kernel behind them; ours lists them in health.
"""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.measure.facts import Facts
from lanewise.trace.intervals import union
from lanewise.trace.schema import Kind
from tests.support.corpus import facts_of, truth

RUNS = sorted(truth())


def rows_by_name(facts: Facts, table: str) -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in getattr(facts, table).rows()}


def close(ours_ns: float, torch_us: float) -> bool:
    return abs(ours_ns / 1e3 - torch_us) <= max(0.02, 1e-3 * abs(torch_us))


@pytest.mark.parametrize("run", RUNS)
def test_counts_and_times_agree_with_torch(run: str) -> None:
    facts = facts_of(run)
    operators, api = rows_by_name(facts, "operators"), rows_by_name(facts, "api")
    device = rows_by_name(facts, "kernels") | rows_by_name(facts, "copies")
    requests = sum(count for count, _ in facts.health.overhead.values())
    compared = 0
    for name, count, self_device, device_total, self_cpu, cpu_total in truth()[run]["key_averages"]:
        name = "ProfilerStep#*" if name == "ProfilerStep*" else name
        if self_cpu == 0 and cpu_total == 0:
            if name in device:
                assert device[name]["count"] == count, name
                assert close(device[name]["total"], self_device), name
                compared += 1
            else:
                assert name in operators, f"torch has device time for {name!r}, which is no annotation either"
        elif name in operators:
            row = operators[name]
            nested, only_children = recursion(facts, name)
            assert row["count"] == count + only_children, name
            assert close(row["host_self"], self_cpu), name
            if not nested or only_children:
                assert close(row["host_total"], cpu_total), name
            if not requests and not nested and row["kind"] == "operator":
                assert close(row["device_self"], self_device), name
                assert close(row["device_total"], device_total), name
            compared += 1
        elif name in api:
            assert api[name]["count"] == count, name
            assert close(api[name]["self"], self_cpu), name
            compared += 1
        else:
            assert name in facts.health.overhead, f"nothing of ours is {name!r}"
    assert compared >= 5


def recursion(facts: Facts, name: str) -> tuple[int, int]:
    """Calls of an operator directly inside one of its own name; and those that are its only child."""
    trace, parent = facts.trace, facts.host.parent
    rows = np.flatnonzero((trace.name == trace.name_ids(name)[0]) & (parent >= 0)) if len(trace.name_ids(name)) else []
    inner = [int(e) for e in rows if trace.name_of(int(parent[e])) == name]
    children = np.bincount(parent[parent >= 0], minlength=len(trace))
    return len(inner), sum(1 for e in inner if children[parent[e]] == 1)


@pytest.mark.parametrize("run", RUNS)
def test_device_totals_are_the_union_of_kernels_copies_and_sets(run: str) -> None:
    facts = facts_of(run)
    trace = facts.trace
    work = trace.of(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
    total = int(facts.kernels["total"].sum() + facts.copies["total"].sum())
    assert total == int(trace.duration[work].sum())
    assert facts.classes.busy.total == union(trace.start[work], trace.end[work]).total
    attributed = int(facts.operators["device_self"].sum())
    linked = int(trace.duration[trace.device_work[trace.links.launch >= 0]].sum())
    assert attributed == linked


@pytest.mark.parametrize("run", RUNS)
def test_annotations_never_add_device_time(run: str) -> None:
    facts = facts_of(run)
    assert not facts.trace.of(Kind.GPU_ANNOTATION).size or not any(
        row["name"].startswith("ProfilerStep") for row in facts.kernels.rows()
    )
    for row in facts.operators.rows():
        if row["kind"] == "annotation":
            assert row["device_total"] <= facts.trace.duration[facts.trace.device_work].sum()
