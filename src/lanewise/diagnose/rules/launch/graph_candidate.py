"""LAU106."""

from __future__ import annotations

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import per
from lanewise.diagnose.what_if.fitting import graphs_per_step
from lanewise.diagnose.what_if.remedies import replayed
from lanewise.measure.facts import Facts
from lanewise.measure.launch.static_regions import static_region
from lanewise.report.evidence_columns import COUNT, VALUE, WHAT, headed
from lanewise.report.quantity import count, time


@rule(
    "LAU106",
    "graph-candidate",
    regimes=("host", "mixed"),
    general=True,
    title="{launches} launches in a row {per} are the same in every step and never wait: one CUDA graph could replay "
    "them; meanwhile the device waits {host} for the host.",
)
def graph_candidate(facts: Facts, *, launches_from: int = 20) -> Outcome:
    """A part of the step is the same every time and could be replayed as one CUDA graph.

    A captured graph starts all its kernels with one call of about 10 us. It needs a part of the step that runs the same
    kernels on the same shapes every time, without waiting for the device, reading a value back or allocating.

    Costs: the time in which the device waits for the host inside the region, less one graph launch.

    Fix: `torch.compile(..., mode="reduce-overhead")`, `torch.cuda.make_graphed_callables`, or a capture by hand; a
    static KV cache for decoding; optimizers with `capturable=True`. Inputs must be written to fixed addresses.

    Verify: one graph launch per step in place of the launches, equal results, and a lower step time without the
    profiler.

    Silent: when the device is the bottleneck, where steps differ in kernels, grids or shapes, and below 20 launches
    between two waits, allocations, collectives or existing graphs.

    Source: gpt-fast; PyTorch's documentation of CUDA graphs.
    """
    region = static_region(facts)
    if region is None:
        return NotApplicable("no launches in steady steps")
    if region.launches < launches_from:
        return Clear(f"the longest run of launches without a wait or an allocation is {region.launches}")
    if region.compared < 2:
        return NeedsCapture("two or more steps: whether a region is static shows only in comparison")
    if not region.same:
        return Clear("the steps launch different kernels, grids or shapes")
    blockers = [{"what": kind, "count": round(number, 1)} for kind, number in region.blockers.items() if number]
    rows = [
        {"what": "launches in the region", "value": f"{region.launches:,}"},
        {"what": "steps compared", "value": f"{region.compared}"},
        {"what": "compared by", "value": "kernels, grids and shapes" if region.shapes else "kernels and grids"},
    ]
    evidence = [table("The region", [headed(WHAT, ""), VALUE], rows)]
    if blockers:
        headings = [headed(WHAT, "what no graph can hold, elsewhere in the step"), COUNT]
        evidence.append(table("Outside the region", headings, blockers))
    return Found(
        values={
            "launches": count(region.launches),
            "host": time(region.host_ns),
            "device": time(region.device_ns),
            "per": per(facts),
        },
        change=replayed(facts, region.calls),
        spread=0.2,
        fix=_fix(facts),
        confidence="high" if region.shapes and region.compared > 2 else "medium",
        evidence=evidence,
        location=locate(facts, int(region.calls[0])),
        events=region.calls.tolist(),
    )


def _fix(facts: Facts) -> str | None:
    graphs = graphs_per_step(facts)
    if graphs < 1:
        return None
    return (
        f"Extend the graphs that the program has ({graphs:,.0f} are launched per step) over this region, or capture it as "
        "one more. Inputs must be written to fixed addresses."
    )
