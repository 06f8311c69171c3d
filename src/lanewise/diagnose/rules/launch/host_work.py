"""LAU111."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.rules.launch import many_tiny_kernels
from lanewise.diagnose.select import counted, of_step, per
from lanewise.diagnose.what_if.fitting import host_matters, mostly_compiled
from lanewise.diagnose.what_if.remedies import replayed
from lanewise.measure.facts import Facts
from lanewise.replay.change import overlap
from lanewise.report.evidence_columns import COUNT, OPERATOR, SITE, TIME, headed
from lanewise.report.quantity import share, text, time
from lanewise.trace.schema import Kind

_SHOWN = 8
_IN_COMPILED_CODE = (
    'let the compiled code replay itself: `torch.compile(..., mode="reduce-overhead")` starts a region with one launch. '
    "Look at the operators that take most for what stays outside; a larger batch gives the device more to do for the "
    "same host time."
)


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    if contexts.regime != "host":
        return NotApplicable("the host does not set the pace")
    asked = many_tiny_kernels.many_tiny_kernels
    if asked.of_tree is not None and isinstance(asked.of_tree(contexts, **asked.thresholds), Found):
        return Clear("many short kernels are what the host is at: LAU101 speaks of them")
    operators = contexts.operators("::|Backward|^autograd")
    inside = contexts.within(operators)
    spent = float(contexts.host[inside].sum())
    if contexts.of_step(spent) < share_from:
        return Clear(f"operators take {contexts.of_step(spent):.1%} of the step")
    rows = np.flatnonzero(operators)
    top = contexts.by_name(rows, count=contexts.calls[rows], time=contexts.host[rows])
    mine = rows[[contexts.name(row) == top[0]["site"] for row in rows.tolist()]]
    return Found(
        values={
            "inside": time(spent),
            "per": contexts.per,
            "operator": text(str(top[0]["site"])),
            "part": share(float(top[0]["time"]) / max(1.0, spent)),
            "launches": counted(float(contexts.launches.sum()), "launch", "launches"),
        },
        saves=contexts.saving(inside),
        evidence=[
            table(
                "Operators by their own host time",
                [headed(SITE, "operator"), headed(COUNT, "calls"), headed(TIME, "host time")],
                top,
            )
        ],
        location=contexts.location(int(mine[np.argmax(contexts.host[mine])])),
    )


@rule(
    "LAU111",
    "host-work",
    of_tree=_of_tree,
    general=True,
    title="Operators spend {inside} {per} on the host, the most in {operator} ({part} of that), to make {launches}.",
)
def host_work(facts: Facts, *, share_from: float = 0.10) -> Outcome:
    """The host sets the pace, and not by starting many short kernels.

    Then the operators themselves cost: work on the CPU between two launches, large operators that dispatch others, a
    compiler's wrappers. What takes longest is the place to look at.

    Costs: at most the host's time in operators: less, one launch for all of them, and other threads for what launches
    nothing.

    Fix: look first at the operators that take most: work on the CPU that could be done on the device, once instead of every
    step, or by another thread. Then one launch for all: `torch.compile(..., mode="reduce-overhead")` or a CUDA graph. A
    larger batch gives the device more to do for the same host time.

    Verify: the operators' host time per step falls.

    Silent: where the device does not wait for the host, where many short kernels are what the host is at (LAU101), and
    where operators take less than 10 % of the step.

    Source: common practice.
    """
    trace, host = facts.trace, facts.host
    if facts.regime.name != "host" and not (facts.regime.name == "mixed" and host_matters(facts)):
        return NotApplicable("the host does not set the pace")
    calls = facts.steady_events(facts.launches.call)
    steps = facts.steady_count
    if isinstance(many_tiny_kernels.many_tiny_kernels.check(facts), Found):
        return Clear("many short kernels are what the host is at: LAU101 speaks of them")
    operators = facts.steady_events(trace.of(Kind.OPERATOR))
    outer = operators[host.outermost_operator[operators] == operators]
    inside = float((trace.duration[outer] - host.wait_inside[outer]).sum()) / steps
    if of_step(facts, inside) < share_from or inside < share_from * facts.steps.period_ns:
        return Clear(f"operators take {of_step(facts, inside):.1%} of the step")
    own = np.bincount(trace.name[operators], weights=host.self_time[operators], minlength=len(trace.names))
    number = np.bincount(trace.name[operators], minlength=len(trace.names))
    top = np.argsort(-own, kind="stable")[:_SHOWN]
    rows: list[dict[str, Any]] = [
        {"operator": trace.names[name], "count": float(number[name]) / steps, "time": float(own[name]) / steps}
        for name in top.tolist()
        if own[name] > 0
    ]
    silent = outer[(facts.launches_inside[outer] == 0) & (host.wait_inside[outer] == 0)]
    most = operators[trace.name[operators] == top[0]]
    return Found(
        values={
            "inside": time(inside),
            "per": per(facts),
            "operator": text(trace.names[int(top[0])]),
            "part": share(float(own[top[0]]) / max(1.0, float(own.sum()))),
            "launches": counted(len(calls) / steps, "launch", "launches"),
        },
        fix=_IN_COMPILED_CODE if mostly_compiled(facts, calls) else None,
        change=replayed(facts, calls) + overlap(silent),
        bound=True,
        evidence=[table("Operators by their own host time", [OPERATOR, COUNT, headed(TIME, "host time")], rows)],
        location=locate(facts, int(most[np.argmax(host.self_time[most])])),
        events=outer.tolist(),
    )
