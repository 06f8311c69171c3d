"""CMP101."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import line_hint, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, per
from lanewise.measure.facts import Facts
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import COUNT, OPERATOR, TIME, headed
from lanewise.report.model import Block, TableColumn
from lanewise.report.quantity import text, time
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

# What the compiler runs itself around the graphs of a region.
_OWN = r"^(?:TorchDynamo|Pregraph bytecode|AOTDispatcher|Torch-Compiled Region|## Call|CompiledFunction|triton_)"


@rule(
    "CMP101",
    "graph-break",
    title="torch.compile breaks the graph {breaks} {per}: {time} of host time runs between the pieces, uncompiled.",
)
def graph_break(facts: Facts) -> Outcome:
    """A compiled function is split into several graphs.

    Where the compiler meets something that it cannot trace (a print, `.item()`, an unsupported call) it ends the graph,
    runs that piece in Python and compiles the rest as another region inside the first. Nothing is fused across the
    break, guards are checked twice, and CUDA graphs are cut, too.

    Costs: the host time of the outer region outside its compiled graphs, and what entering each further graph costs
    beyond its launches.

    Fix: `torch.compile(fullgraph=True)` turns each break into an error that names its line; `TORCH_LOGS=graph_breaks`
    lists them all. Remove prints and `.item()`, or move them behind the compiled function.

    Verify: one region per call, with none inside.

    Silent: for functions that are compiled separately and run one after the other.

    Source: PyTorch's torch.compile troubleshooting; pytorch test/dynamo/test_profiler.py.
    """
    trace, regions = facts.trace, facts.regions
    if len(regions.region) == 0:
        return NotApplicable("no compiled region")
    frame = dict(zip(regions.region.tolist(), regions.frame.tolist(), strict=True))
    inside = regions.parent >= 0
    other = np.array([inside[i] and frame[int(regions.parent[i])] != regions.frame[i] for i in range(len(inside))])
    nested = facts.steady_events(regions.region[other])
    if len(nested) == 0:
        return Clear("no region continues in another one")

    outer = _outermost(facts, nested)
    graphs = facts.regions.graph_call
    within = mask_of(len(trace), outer)
    graphs = graphs[nearest(facts.host.parent, within, graphs) >= 0] if len(graphs) else graphs
    steps = facts.steady_count
    waits = int(facts.host.wait_inside[outer].sum())
    between = (int(trace.duration[outer].sum()) - int(trace.duration[graphs].sum()) - waits) / steps
    further = max(0.0, between) + _entering(facts, graphs, nested) / steps
    evidence: list[Block] = [
        table(
            "Regions that continue in another one",
            [TableColumn("region", "text", "inner region"), TableColumn("outer", "text", "outer region"), COUNT],
            _pairs(facts, nested),
        )
    ]
    rows = _between(facts, outer, graphs)
    if rows:
        headings = [OPERATOR, headed(TIME, "time per step")]
        evidence.append(table("What runs between the graphs", headings, rows))
    return Found(
        values={
            "breaks": counted(len(nested) / steps, "time", "times"),
            "time": time(max(0.0, between)),
            "per": per(facts),
            "region": text(trace.name_of(int(outer[0]))),
        },
        change=cheaper(outer, max(0.0, 1 - further * steps / max(1.0, float(trace.duration[outer].sum())))),
        spread=0.2,
        evidence=[*evidence, *line_hint(facts)],
        location=locate(facts, int(nested[0])),
        events=[*outer.tolist(), *nested.tolist()],
    )


def _entering(facts: Facts, graphs: np.ndarray, nested: np.ndarray) -> int:
    """Host time of graph calls in nested regions less that of their launches: one graph would be entered once."""
    trace = facts.trace
    if len(graphs) == 0:
        return 0
    within = mask_of(len(trace), nested)
    graphs = graphs[nearest(facts.host.parent, within, graphs) >= 0]
    called = facts.regions.graph_of_call
    launches = facts.launches.call[np.isin(called, graphs)]
    return int(trace.duration[graphs].sum() - facts.host.wait_inside[graphs].sum() - trace.duration[launches].sum())


def _outermost(facts: Facts, nested: np.ndarray) -> np.ndarray:
    parent = dict(zip(facts.regions.region.tolist(), facts.regions.parent.tolist(), strict=True))
    tops: set[int] = set()
    for event in nested.tolist():
        at = event
        while parent[at] >= 0:
            at = parent[at]
        tops.add(at)
    return np.array(sorted(tops), dtype=np.int64)


def _pairs(facts: Facts, nested: np.ndarray) -> list[dict[str, object]]:
    trace = facts.trace
    parent = dict(zip(facts.regions.region.tolist(), facts.regions.parent.tolist(), strict=True))
    counts: dict[tuple[str, str], int] = {}
    for event in nested.tolist():
        pair = (trace.name_of(event), trace.name_of(parent[event]))
        counts[pair] = counts.get(pair, 0) + 1
    return [
        {"region": inner, "outer": outer, "count": round(number / facts.steady_count, 1)}
        for (inner, outer), number in sorted(counts.items(), key=lambda item: -item[1])
    ]


def _between(facts: Facts, outer: np.ndarray, graphs: np.ndarray) -> list[dict[str, object]]:
    """Operators inside the outer regions and outside every graph, by time."""
    trace, parent = facts.trace, facts.host.parent
    holder = mask_of(len(trace), facts.regions.region)
    holder[graphs] = True
    events = facts.steady_events(trace.of(Kind.OPERATOR))
    own = trace.name_mask(_OWN)[trace.name[events]]
    events = events[~own & np.isin(parent[events], facts.regions.region)]
    top = mask_of(len(trace), outer)
    events = events[nearest(parent, top, events) >= 0]
    time_of = np.bincount(trace.name[events], weights=trace.duration[events], minlength=len(trace.names))
    steps = facts.steady_count
    order = np.argsort(-time_of, kind="stable")[:6].tolist()
    return [{"operator": trace.names[int(n)], "time": float(time_of[n]) / steps} for n in order if time_of[n] > 0]
