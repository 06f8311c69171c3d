"""LAU109."""

from __future__ import annotations

from typing import Any

from lanewise.diagnose.evidence import locate
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import replayed
from lanewise.measure.facts import Facts
from lanewise.measure.launch.static_regions import static_region
from lanewise.report.model import TextBlock
from lanewise.report.quantity import count, text, time
from lanewise.trace.metadata import from_metadata

_GRAPHS = ("reduce-overhead", "max-autotune")
_GRAPH_LAUNCH_NS = 10_000


@rule(
    "LAU109",
    "graph-skipped",
    general=True,
    title="The program was compiled with mode {mode}, which replays CUDA graphs, but {regions} compiled regions per "
    "step ran and no graph was launched.",
)
def graph_skipped(facts: Facts) -> Outcome:
    """CUDA graphs were asked for and quietly left out.

    torch.compile skips graphs for a region that mutates its inputs, holds CPU operators, uses several devices or
    operators that cannot be captured. The program still runs, with every launch paid for.

    Costs: as for a region that a graph could replay (LAU106).

    Fix: by the reason that `TORCH_LOGS=perf_hints,cudagraphs` gives: clone mutated inputs, move CPU tensors to the
    device, or split the region around the operator (`torch._inductor.config.graph_partition = True`).

    Verify: a graph launch per region appears in steady steps.

    Silent: without knowing the mode, which a trace does not hold: `prof.add_metadata("compile_mode",
    "reduce-overhead")` writes it into the trace. In warm-up.

    Source: PyTorch's documentation of CUDA-graph trees.
    """
    trace, regions = facts.trace, facts.regions
    if not regions.present:
        return NotApplicable("nothing compiled runs")
    if len(facts.steady_events(trace.links.calls("graph_launch"))):
        return Clear("graphs are launched in steady steps")
    if facts.regime.name not in {"host", "mixed"}:
        return NotApplicable(f"the run is {facts.regime.name}-bound: a graph would save host time")
    mode = _mode(facts)
    if mode is None:
        return NeedsCapture(
            'the mode of torch.compile (`prof.add_metadata("compile_mode", "default")`), and the log of '
            "`TORCH_LOGS=perf_hints,cudagraphs` for the reason if it is reduce-overhead or max-autotune"
        )
    if not mode.startswith(_GRAPHS) or mode.endswith("no-cudagraphs"):
        return Clear(f"mode {mode} does not use graphs")
    calls = facts.steady_events(regions.graph_call if len(regions.graph_call) else regions.region)
    if len(calls) == 0:
        return Clear("no compiled region runs in steady steps")
    region = static_region(facts)
    steady = facts.steady_count
    values = {"mode": text(mode), "regions": count(round(len(calls) / steady, 1))}
    return Found(
        values=values,
        change=replayed(facts, region.calls) if region is not None else None,
        spread=0.2,
        evidence=[
            TextBlock(
                "In the longest run of launches without a wait the device waits {host} per step for the host.",
                {"host": time(region.host_ns)},
            )
        ]
        if region is not None
        else [],
        location=locate(facts, int(calls[0])),
        events=region.calls if region is not None else (),
        confidence="medium",
    )


def _mode(facts: Facts) -> str | None:
    """The mode of torch.compile as the recording names it, or None."""
    value: Any = facts.trace.metadata.get("compile_mode")
    recorded = from_metadata(facts.trace.metadata)
    if value is None and recorded is not None:
        settings = recorded.environment.get("torch")
        value = settings.get("compile_mode") if isinstance(settings, dict) else None
    return value.strip().strip('"')[:60] if isinstance(value, str) and value.strip() else None
