"""LAU104."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import host_window, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import per
from lanewise.measure.facts import Facts
from lanewise.measure.launch.library_setup import opaque_operators
from lanewise.replay.change import cheaper
from lanewise.report.evidence_columns import COUNT, KIND, TIME, WHAT, headed
from lanewise.report.quantity import count, share, text, time
from lanewise.trace.schema import Kind

_INITIALISATION_NS = 1_000_000


@rule(
    "LAU104",
    "library-planning",
    title="{share} of the host's time {per} is library planning: {time}, most of it in {operator}.",
)
def library_planning(
    facts: Facts, *, share_from: float = 0.1, self_above_us: float = 100.0, time_from_us: float = 20.0
) -> Outcome:
    """Libraries spend host time on deciding how to run a kernel.

    cuBLAS and cuDNN choose an algorithm before they launch; some of that shows as calls that ask for attributes and
    occupancy, most of it leaves no row and is the operator's self time. The calls by themselves are benign: they mark a
    kernel that is launched to fit the device. Only their time counts.

    Costs: the query calls, and the self time of operators that take more than 100 us for a single launch, or more than
    1 ms for each of a few.

    Fix: compare the backends on host **and** device time (attention especially), replay the region as a CUDA graph,
    which plans once, or let cuDNN search once (`torch.backends.cudnn.benchmark = True`).

    Verify: the self time of these operators falls.

    Silent: for the mere presence of queries, however many, below 20 us per step, and for calls of a millisecond or more,
    which initialise the driver.

    Source: huggingface/blog torch-profiler and torch-attention-profile.
    """
    trace = facts.trace
    host = host_window(facts)
    if host <= 0 or len(trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)) == 0:
        return NotApplicable("the trace holds no operators or calls")
    queries = facts.steady_events(trace.links.calls("query"))
    # A first call into the driver creates the context inside: seconds that are no query.
    queries = queries[trace.duration[queries] < _INITIALISATION_NS]
    query_time = facts.host.self_time[queries]
    opaque = opaque_operators(facts, above_ns=round(self_above_us * 1e3))
    own = facts.host.self_time[opaque]
    rows_of_planning = np.concatenate((queries, opaque))
    part_of_row = facts.host.self_time[rows_of_planning] / np.maximum(trace.duration[rows_of_planning], 1)
    total = float(query_time.sum() + own.sum()) / facts.steady_count
    part = total / host
    if part <= share_from or total < time_from_us * 1e3:
        return Clear(f"queries and operators that plan are {part:.1%} of the host's time")
    steps = facts.steady_count
    events = np.concatenate((opaque, queries))
    time_of = np.bincount(trace.name[events], weights=np.concatenate((own, query_time)), minlength=len(trace.names))
    number = np.bincount(trace.name[events], minlength=len(trace.names))
    is_query = np.bincount(trace.name[queries], minlength=len(trace.names)) > 0
    order = [int(name) for name in np.argsort(-time_of, kind="stable")[:8] if time_of[name] > 0]
    rows = [
        {
            "what": trace.names[name],
            "kind": "query" if is_query[name] else "self time of an operator",
            "count": round(float(number[name]) / steps, 1),
            "time": float(time_of[name]) / steps,
        }
        for name in order
    ]
    dearest = int(events[np.argmax(np.concatenate((own, query_time)))])
    return Found(
        values={
            "share": share(part),
            "time": time(total),
            "operator": text(trace.names[order[0]]),
            "queries": count(round(len(queries) / steps, 1)),
            "per": per(facts),
        },
        change=cheaper(rows_of_planning, 1 - part_of_row),
        bound=True,
        confidence="medium",
        evidence=[
            table("Planning", [headed(WHAT, "operator or call"), KIND, COUNT, headed(TIME, "time per step")], rows)
        ],
        location=locate(facts, dearest),
        events=events.tolist(),
    )
