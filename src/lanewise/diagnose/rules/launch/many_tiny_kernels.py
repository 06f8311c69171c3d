"""LAU101."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lanewise.diagnose.evidence import by_line, in_steady_steps, locate, per_step, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import replayed
from lanewise.measure.facts import Facts
from lanewise.report.quantity import QuantityType, count, time

_SHOWN: dict[str, tuple[QuantityType, str]] = {
    "short": ("count", "kernels below 10 us"),
    "kernels": ("count", "kernels"),
    "device": ("time", "device time"),
}


@rule(
    "LAU101",
    "many-tiny-kernels",
    general=True,
    title="{launches} launches per step, {kernels} of them of kernels of {median_kernel}; the host pays {host_cost} for "
    "each.",
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

    Silent: when the device is the bottleneck (short kernels behind a deep queue cost nothing) and below 20 launches per
    step.

    Source: torch/profiler/_pattern_matcher.py, HTA's short-kernel analysis; 90 launches already suffice on our H100.
    """
    if facts.regime.name not in {"host", "mixed"}:
        return NotApplicable(f"the run is {facts.regime.name}-bound: launches are hidden behind device work")
    trace = facts.trace
    calls = in_steady_steps(facts, facts.launches.call)
    launches = per_step(facts, facts.launches.call)
    kernels = in_steady_steps(facts, trace.of(7))
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
        {"range": label, "kernels": float(n) / max(1, int(facts.steps.steady.sum()))}
        for label, n in zip(labels, counts, strict=True)
        if n
    ]
    return Found(
        values={
            "launches": count(round(launches)),
            "kernels": count(round(per_step(facts, kernels), 1)),
            "median_kernel": time(median),
            "host_cost": time(float(np.median(cost_of_call[calls]))),
            "queue_delay": time(facts.regime.queue_delay_ns),
        },
        change=replayed(facts, calls),
        bound=True,
        evidence=[
            table("Kernel durations per step", {"range": ("text", "duration"), "kernels": ("count", "kernels")}, rows),
            *by_line(facts, "Who starts short kernels, per step", _SHOWN, by="short"),
        ],
        location=locate(facts, int(calls[len(calls) // 2])),
        events=calls.tolist(),
    )
