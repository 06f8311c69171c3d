"""LAU101."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lanewise.diagnose.evidence import by_line, locate, per_step, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import per
from lanewise.diagnose.what_if.fitting import graphs_per_step, host_matters, mostly_compiled
from lanewise.diagnose.what_if.remedies import replayed
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import DEVICE, HOST, KERNELS, LAUNCHES, SITE
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, time
from lanewise.trace.schema import Kind

_SHOWN = [TableColumn("short", "count", "kernels below 10 us"), KERNELS, DEVICE]


def _of_tree(contexts: Contexts, *, launches_from: int, median_kernel_below_us: float) -> Outcome:
    if not contexts.host_matters:
        return NotApplicable(f"the run is {contexts.regime}-bound: launches are hidden behind device work")
    kernels = contexts.kernels
    starting = contexts.holding(kernels) & contexts.operators(".")
    number = float(contexts.count[kernels].sum())
    parents = np.unique(contexts.tree.parent[kernels & (contexts.tree.parent >= 0)])
    launches = float(contexts.launches[parents].sum())
    if launches < launches_from or number == 0:
        return Clear(f"{launches:.0f} launches {contexts.per}")
    mean = contexts.device[kernels] / np.maximum(contexts.count[kernels], 1e-12)
    median = _weighted_median(mean, contexts.count[kernels])
    if median >= median_kernel_below_us * 1e3:
        return Clear(f"the median kernel takes {median / 1e3:.1f} us")
    outer = contexts.outermost(starting)
    paid = contexts.inside(contexts.host)[outer]
    rows = np.flatnonzero(outer)
    return Found(
        values={
            "launches": count(round(launches)),
            "per": contexts.per,
            "kernels": count(round(number, 1) if number < 100 else round(number)),
            "median_kernel": time(median),
            "host_cost": time(float(paid.sum()) / launches),
        },
        saves=contexts.saving(contexts.within(outer)),
        confidence="medium",
        evidence=[
            table(
                "Who starts kernels",
                [SITE, LAUNCHES, HOST],
                contexts.by_site(rows, launches=contexts.inside(contexts.launches)[outer], host=paid),
            )
        ],
        location=contexts.location(int(rows[np.argmax(paid)])),
    )


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(reached, reached[-1] / 2)]])


@rule(
    "LAU101",
    "many-tiny-kernels",
    general=True,
    of_tree=_of_tree,
    title="{launches} launches {per} for kernels of about {median_kernel}; each launch costs the host {host_cost}.",
)
def many_tiny_kernels(facts: Facts, *, launches_from: int = 20, median_kernel_below_us: float = 10.0) -> Outcome:
    """The host cannot start kernels as fast as the device finishes them.

    Every operator costs host time (Python, dispatch, the launch call) before its kernel can run. When kernels are
    shorter than that, the device waits, however fast it is.

    Costs: the host time of the operators that launch, less one graph launch.

    Fix: give the device more work per launch (a larger batch, vectorised code), or launch less often: torch.compile
    fuses pointwise chains, a CUDA graph (`mode="reduce-overhead"`, `torch.cuda.make_graphed_callables`) replays the
    whole step with one launch.

    Verify: launches per step go down and the busy share goes up.

    Silent: when the device hardly waits for the host (short kernels behind a deep queue cost nothing) and below 20 launches
    of kernels per step; copies do not count.

    Source: torch/profiler/_pattern_matcher.py, HTA's short-kernel analysis; 90 launches already suffice on our H100.
    """
    if not host_matters(facts):
        return NotApplicable(f"the run is {facts.regime.name}-bound: launches are hidden behind device work")
    trace = facts.trace
    # Copies have causes of their own: how long a kernel takes says nothing of them.
    kernels = trace.of(Kind.KERNEL)
    starting = trace.links.launch_of(kernels)
    # The nodes of a graph are started by one call for all of them.
    single = (starting >= 0) & ~trace.links.names_of("graph_launch")[trace.name[np.maximum(starting, 0)]]
    kernels, starting = kernels[single], np.unique(starting[single])
    calls = facts.steady_events(starting)
    launches = per_step(facts, starting)
    kernels = facts.steady_events(kernels)
    if launches < launches_from or len(kernels) == 0:
        return Clear(f"{launches:.0f} launches per step")
    median = float(np.median(trace.duration[kernels]))
    if median >= median_kernel_below_us * 1e3:
        return Clear(f"the median kernel takes {median / 1e3:.1f} us")
    cost_of_call = np.zeros(len(trace), dtype=np.int64)
    cost_of_call[facts.launches.call] = facts.launches.host_cost
    edges = [0, 2, 5, 10, 20, 50, 100, float("inf")]
    in_us = trace.duration[kernels] / 1e3
    counts = np.histogram(in_us, bins=edges)[0]
    labels = [
        f"{low:g} to {high:g} us" if high != float("inf") else f"{low:g} us and more" for low, high in pairwise(edges)
    ]
    rows = [
        {"range": label, "kernels": float(n) / facts.steady_count} for label, n in zip(labels, counts, strict=True) if n
    ]
    return Found(
        values={
            "launches": count(round(launches)),
            "per": per(facts),
            "kernels": count(round(per_step(facts, kernels), 1)),
            "median_kernel": time(median),
            "host_cost": time(float(np.median(cost_of_call[calls]))),
            "queue_delay": time(facts.regime.queue_delay_ns),
        },
        change=replayed(facts, calls),
        bound=True,
        fix=_fix(facts, calls),
        evidence=[
            table("Kernel durations per step", [TableColumn("range", "text", "duration"), KERNELS], rows),
            *by_line(facts, "Who starts short kernels, per step", _SHOWN, by="short"),
        ],
        location=locate(facts, int(calls[len(calls) // 2])),
        events=calls.tolist(),
    )


def _fix(facts: Facts, calls: np.ndarray) -> str | None:
    """What is left to do where the program is compiled, or launches graphs, already."""
    graphs = graphs_per_step(facts)
    if graphs >= 1:
        return (
            f"Give the device more work per launch (a larger batch), or make the graphs larger: {graphs:,.0f} are"
            " launched per step already, not counting these. A part that breaks them (a wait, an operator that cannot be"
            " captured) decides where one ends."
        )
    if mostly_compiled(facts, calls):
        return (
            "Give the device more work per launch (a larger batch), or let the compiled code replay itself: "
            '`torch.compile(..., mode="reduce-overhead")` starts a whole region with one launch.'
        )
    return None
