"""LAU105."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import host_window, line_hint, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, per
from lanewise.diagnose.what_if.fitting import mostly_in_regions
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, OPERATOR, TIME, headed
from lanewise.report.quantity import share, time
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

_IN_COMPILED_CODE = (
    "hoist them out of the loop, and give weights the layout in which they are used: they stand in compiled code, which "
    "keeps those that its library calls need."
)


@rule(
    "LAU105",
    "view-op-overhead",
    title="{operators} {per} only change how memory is described ({time}, {share} of the host's time) and "
    "compute nothing.",
)
def view_op_overhead(facts: Facts, *, share_from: float = 0.20) -> Outcome:
    """Operators that move no data take a good part of the host's time.

    `view`, `transpose`, `select` and the like return another description of memory that exists. No kernel runs, but
    Python, dispatch and autograd bookkeeping cost as much as for an operator that computes.

    Costs: the self time of these operators.

    Fix: `torch.compile` removes them from the step; otherwise hoist views out of loops, and give weights the layout in
    which they are used.

    Verify: the rows are gone.

    Silent: at 20 % of the host's time or less, which plain `nn.Linear` layers come near to with the views of their
    weights, and for operators that copy after all (MEM104).

    Source: huggingface/blog torch-mlp-fusion; 0 to 18 % in our H100 recordings, up to 16 % in programs without a fault.
    """
    trace = facts.trace
    host = host_window(facts)
    views = facts.view_names[trace.name] & (trace.kind == Kind.OPERATOR) if len(trace) else np.zeros(0, bool)
    if host <= 0 or len(trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)) == 0:
        return NotApplicable("the trace holds no operators or calls")
    # A view around a launch copied something; climb to every view around it.
    copying = views.copy()
    at = nearest(facts.host.parent, views, facts.launches.call)
    while (at >= 0).any():
        at = at[at >= 0]
        copying[at] = False
        at = nearest(facts.host.parent, views, at)
    events = facts.steady_events(np.flatnonzero(copying))
    own = facts.host.self_time[events]
    steps = facts.steady_count
    total = float(own.sum()) / steps
    part = total / host
    if part <= share_from:
        return Clear(f"operators that move no data are {part:.1%} of the host's time")
    time_of = np.bincount(trace.name[events], weights=own, minlength=len(trace.names))
    number = np.bincount(trace.name[events], minlength=len(trace.names))
    rows = [
        {
            "operator": trace.names[int(name)],
            "count": round(float(number[name]) / steps, 1),
            "time": float(time_of[name]) / steps,
        }
        for name in np.argsort(-time_of, kind="stable")[:8]
        if number[name]
    ]
    return Found(
        values={
            "operators": counted(len(events) / steps, "operator", "operators"),
            "time": time(total),
            "share": share(part),
            "per": per(facts),
        },
        change=remove(facts, events),
        fix=_IN_COMPILED_CODE if mostly_in_regions(facts, events) else None,
        evidence=[
            table(
                "Operators that move no data, by self time", [OPERATOR, COUNT, headed(TIME, "self time per step")], rows
            ),
            *line_hint(facts),
        ],
        location=locate(facts, int(events[np.argmax(own)])),
        events=events.tolist(),
    )
