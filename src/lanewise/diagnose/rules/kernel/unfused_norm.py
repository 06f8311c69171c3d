"""KER111."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, host_cost, per
from lanewise.diagnose.what_if.remedies import fuse
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, HOST, OPERATOR, SHAPES, SITE, TIME, headed
from lanewise.report.quantity import count, time
from lanewise.tree.forest import nearest_marked
from lanewise.tree.model import Phase

# By letters of `Leaves`, with or without casts (c): square, mean, epsilon, root, scale, and the weight.
_ROOT_MEAN_SQUARE = r"[px]c?mc?ac?(?:rc?x|qc?d)(?:c?x)?"
# Mean and variance, or deviation, of what is left of it; epsilon, root, scale, and the weight with the bias.
_VARIANCE = r"(?:mc?uc?[px]c?m|mc?(?:uc?)?v|vc?m)"
_LAYER = rf"{_VARIANCE}c?(?:uc?)?(?:ac?(?:uc?)?(?:rc?x|qc?d)(?:c?x(?:c?a)?)?|(?:xc?)?ac?d(?:c?x)?(?:c?a)?)"
_CHAIN = rf"(?:c?{_LAYER}|c?{_ROOT_MEAN_SQUARE})"


_OF_ONE = {
    r"^aten::(pow|square)$": 1,
    r"^aten::mean$": 1,
    r"^aten::add_?$": 1,
    r"^aten::rsqrt_?$": 1,
    r"^aten::mul_?$": 2,
}
"""Operators of one normalisation and how many of each."""


def _of_tree(contexts: Contexts, *, share_from: float) -> Outcome:
    if not contexts.kernels.any():
        return NotApplicable("the tree holds no kernels")
    tree, forward = contexts.tree, contexts.tree.phase != Phase.BACKWARD
    above = np.maximum(tree.parent, 0)
    norms = np.zeros(len(tree))
    parts = [contexts.operators(pattern) & forward & (tree.parent >= 0) for pattern in _OF_ONE]
    calls = [np.bincount(above, weights=np.where(part, contexts.calls, 0.0), minlength=len(tree)) for part in parts]
    # In one function and module: as many as of the rarest operator.
    norms = np.min([each / number for each, number in zip(calls, _OF_ONE.values(), strict=True)], axis=0)
    total = float(norms.sum())
    if total == 0:
        return Clear("no pow, mean, rsqrt and mul in one function")
    part_of = np.zeros(len(tree))
    for part, each, number in zip(parts, calls, _OF_ONE.values(), strict=True):
        part_of[part] = np.minimum(1.0, norms[above[part]] * number / np.maximum(each[above[part]], 1e-12))
    share_of = part_of[np.maximum(nearest_marked(tree.parent, part_of > 0), 0)]
    share_of[nearest_marked(tree.parent, part_of > 0) < 0] = 0.0
    host, device = float((contexts.host * share_of).sum()), float((contexts.device * share_of).sum())
    if contexts.of_step(max(host, device)) < share_from:
        return Clear(f"{total:g} normalisations are spelled out, {contexts.of_step(max(host, device)):.1%} of the step")
    operators = sum(_OF_ONE.values())
    rows = np.flatnonzero((part_of > 0) & (norms[above] > 0))
    at = rows[contexts.operators(r"rsqrt")[rows]]
    return Found(
        values={
            "norms": counted(total, "normalisation", "normalisations"),
            "per": contexts.per,
            "operators": count(operators),
            "host": time(host),
            "device": time(device),
        },
        saves=contexts.saving(share_of > 0, kept=1.0 - share_of * (1.0 - 1.0 / operators)),
        confidence="medium",
        evidence=[
            table(
                "The normalisations, as far as contexts tell",
                [headed(SITE, "operator"), headed(COUNT, "calls"), HOST],
                contexts.by_site(rows, count=contexts.calls[rows], host=contexts.inside(contexts.host)[rows]),
            )
        ],
        location=contexts.location(int(at[0])) if len(at) else None,
    )


@rule(
    "KER111",
    "unfused-norm",
    of_tree=_of_tree,
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
    steps = facts.steady_count
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
                "One of the normalisations", [OPERATOR, SHAPES, headed(TIME, "device time"), HOST], table_rows, limit=12
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
