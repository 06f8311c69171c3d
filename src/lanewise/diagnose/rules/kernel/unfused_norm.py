"""KER111."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, steady_count, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, host_cost, per
from lanewise.diagnose.what_if.remedies import fuse
from lanewise.measure.facts import Facts
from lanewise.report.quantity import count, time

# By letters of `Leaves`, with or without casts (c): square, mean, epsilon, root, scale, and the weight.
_ROOT_MEAN_SQUARE = r"[px]c?mc?ac?(?:rc?x|qc?d)(?:c?x)?"
# Mean and variance, or deviation, of what is left of it; epsilon, root, scale, and the weight with the bias.
_VARIANCE = r"(?:mc?uc?[px]c?m|mc?(?:uc?)?v|vc?m)"
_LAYER = rf"{_VARIANCE}c?(?:uc?)?(?:ac?(?:uc?)?(?:rc?x|qc?d)(?:c?x(?:c?a)?)?|(?:xc?)?ac?d(?:c?x)?(?:c?a)?)"
_CHAIN = rf"(?:c?{_LAYER}|c?{_ROOT_MEAN_SQUARE})"


@rule(
    "KER111",
    "unfused-norm",
    title="{norms} {per} spelled out as {operators} operations each: {host} on the host, {device} on the GPU.",
)
def unfused_norm(facts: Facts, *, share_from: float = 0.01) -> Outcome:
    """A normalisation is written as its formula (pow, mean, add, rsqrt, mul; with a mean and a bias for a layer
    normalisation): one kernel for each operation.

    Each of them costs a launch and a pass over memory, where one kernel could read the input once and write the result
    once. Frameworks spell it so for clarity; a compiler or one call brings it back together.

    Costs: all but one of the launches (host-bound), or all but one read and one write of the data (device-bound).

    Fix: `torch.nn.functional.rms_norm` or `layer_norm`, `torch.nn.RMSNorm` or `LayerNorm`, torch.compile around it, or a
    fused kernel.

    Verify: one kernel per normalisation.

    Silent: below 1 % of the step, and inside compiled regions, whose generated kernels are fused already.

    Source: huggingface/blog torch-mlp-fusion; 17 per forward pass of a small Llama on our H100.
    """
    trace, leaves = facts.trace, facts.leaves
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    chains = list(leaves.find(_CHAIN))
    steps = steady_count(facts)
    if not chains:
        return Clear("no normalisation is spelled out")
    every = np.concatenate(chains)
    rows = leaves.rows(every)
    calls = trace.links.launch[rows]
    operators = len(every) / len(chains)
    device_ns = float(leaves.time[every].sum()) / steps
    host_ns = host_cost(facts, calls)
    part = max(device_ns, host_ns) / max(1.0, facts.steps.period_ns)
    if part < share_from:
        return Clear(f"{len(chains) / steps:g} normalisations are spelled out per step, {part:.1%} of it")
    one = _one_pass(facts, chains)
    known = one is not None
    if one is None:
        one = np.array([float(leaves.time[chain].sum()) / len(chain) for chain in chains])
    table_rows: list[dict[str, Any]] = [
        {
            "operator": trace.name_of(int(leaves.operator[leaf])),
            "shapes": shapes_label(facts, int(leaves.operator[leaf])),
            "time": float(leaves.time[leaf]),
            "host": float(trace.duration[leaves.operator[leaf]]),
        }
        for leaf in chains[-1].tolist()
    ]
    return Found(
        values={
            "norms": counted(len(chains) / steps, "normalisation", "normalisations"),
            "per": per(facts),
            "operators": count(round(operators)),
            "host": time(host_ns),
            "device": time(device_ns),
        },
        change=fuse(facts, [trace.device_work[leaves.rows(chain)] for chain in chains], one),
        spread=0.2,
        confidence="high" if known else "medium",
        evidence=[
            table(
                "One of the normalisations",
                {
                    "operator": ("text", "operator"),
                    "shapes": ("text", "shapes"),
                    "time": ("time", "device time"),
                    "host": ("time", "host time"),
                },
                table_rows,
                limit=12,
            )
        ],
        location=locate(facts, int(leaves.operator[int(chains[-1][0])])),
        events=[
            *trace.device_work[rows].tolist(),
            *np.unique(calls[calls >= 0]).tolist(),
            *leaves.operator[every].tolist(),
        ],
    )


def _one_pass(facts: Facts, chains: list[np.ndarray]) -> np.ndarray | None:
    """Device time of one read and one write of what each chain normalises, ns; None where shapes are missing."""
    peak = facts.device.peak
    if peak is None or not facts.health.shapes:
        return None
    result: list[float] = []
    for chain in chains:
        call = facts.signatures.of(int(facts.leaves.operator[int(chain[0])]))
        if call is None or not call.tensors:
            return None
        result.append(2 * max(tensor.bytes for tensor in call.tensors) / peak.bandwidth * 1e9)
    return np.array(result)
