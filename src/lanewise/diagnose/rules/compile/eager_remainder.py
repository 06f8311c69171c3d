"""CMP108."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import fuse
from lanewise.measure.compile.outside_compiled import Remainder, eager_remainder_of
from lanewise.measure.facts import Facts
from lanewise.replay.change import Change, one_launch
from lanewise.report.evidence_columns import COUNT, DEVICE, HOST, OPERATOR, headed
from lanewise.report.quantity import share, text, time

_GRAPH_LAUNCH_NS = 10_000


@rule(
    "CMP108",
    "eager-remainder",
    general=True,
    title="{share} of {what} is still eager although the program is compiled: {time} per step outside compiled "
    "regions, most of it in {operator}.",
)
def eager_remainder(
    facts: Facts, *, share_from: float = 0.2, optimizer_below: float = 0.1, compiled_from: float = 0.05
) -> Outcome:
    """A good part of a compiled program runs outside its compiled regions.

    Pre- and post-processing, the loss, the optimizer step or a module that was left out keep the costs that compilation
    was to remove: a launch per operator, and a pass over memory per pointwise operator.

    Costs: the host time of the operators outside, less one graph launch (host-bound), or what fusing their pointwise
    chains would save (device-bound).

    Fix: compile a function that contains the rest, the loss included; compile the optimizer step, too.

    Verify: the share outside falls.

    Silent: at 20 % or less, and where less than 5 % is compiled at all; the optimizer step does not count while it is
    below 10 %.

    Source: PyTorch's torch.compile documentation.
    """
    if not facts.regions.present:
        return NotApplicable("nothing compiled runs")
    rest = eager_remainder_of(facts)
    if rest is None:
        return NotApplicable("no launches in steady steps")
    compiled = 1 - min(rest.host_ns / max(1, rest.host_total_ns), rest.device_ns / max(1, rest.device_total_ns))
    if compiled < compiled_from:
        return NotApplicable(f"only {compiled:.1%} of the work is compiled: it is an eager program")
    device_bound = facts.regime.name == "compute"
    part = _share(rest, device_bound, optimizer_below)
    if part <= share_from:
        return Clear(f"{part:.0%} runs outside compiled regions")
    steps = facts.steady_count
    calls = facts.steady_events(rest.calls)
    operators = np.unique(facts.host.outermost_operator[calls])
    operators = operators[(operators >= 0) & (facts.host.wait_inside[operators] == 0)]
    rows = _by_operator(facts, rest)
    return Found(
        values={
            "share": share(part),
            "what": text("device time" if device_bound else "the operators' host time"),
            "time": time((rest.device_ns if device_bound else rest.host_ns) / steps),
            "operator": text(str(rows[0]["operator"]) if rows else "no operator"),
        },
        change=one_launch(operators) + _fused_chains(facts),
        bound=True,
        confidence="medium",
        evidence=[
            table(
                "Operators outside compiled regions",
                [OPERATOR, COUNT, headed(HOST, "host time per step"), headed(DEVICE, "device time per step")],
                rows,
            )
        ]
        if rows
        else [],
        location=locate(facts, int(calls[0])) if len(calls) else None,
        events=calls.tolist(),
    )


def _fused_chains(facts: Facts) -> Change:
    """Each run of pointwise kernels as one that takes what the longest does."""
    chains, trace = facts.pointwise_chains, facts.trace
    event = trace.device_work[chains.row]
    groups = [event[chains.chain == one] for one in range(len(chains))]
    return fuse(facts, groups, [float(trace.duration[group].max()) for group in groups])


def _share(rest: Remainder, device_bound: bool, optimizer_below: float) -> float:
    outside = rest.device_ns if device_bound else rest.host_ns
    total = rest.device_total_ns if device_bound else rest.host_total_ns
    optimizer = rest.device_optimizer_ns if device_bound else rest.host_optimizer_ns
    if optimizer < optimizer_below * max(1, total):
        outside -= optimizer
    return outside / max(1, total)


def _by_operator(facts: Facts, rest: Remainder) -> list[dict[str, object]]:
    trace, steps = facts.trace, facts.steady_count
    events = rest.operators
    host = np.bincount(trace.name[events], weights=trace.duration[events], minlength=len(trace.names))
    number = np.bincount(trace.name[events], minlength=len(trace.names))
    owner = facts.host.outermost_operator[rest.calls]
    known = owner >= 0
    device = np.bincount(
        trace.name[owner[known]], weights=facts.device_time_of_call[rest.calls[known]], minlength=len(trace.names)
    )
    return [
        {
            "operator": trace.names[int(n)],
            "count": round(float(number[n]) / steps, 1),
            "host": float(host[n]) / steps,
            "device": float(device[n]) / steps,
        }
        for n in np.argsort(-(device if facts.regime.name == "compute" else host), kind="stable")[:8].tolist()
        if number[n]
    ]
