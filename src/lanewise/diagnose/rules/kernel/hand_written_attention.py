"""KER109."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, enclosing, named, outermost, per
from lanewise.diagnose.what_if.remedies import fuse
from lanewise.measure.facts import Facts
from lanewise.measure.signatures import Tensor
from lanewise.report.evidence_columns import COUNT, OPERATOR, SHAPES, SITE, TIME, headed
from lanewise.report.quantity import byte_size, time
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind
from lanewise.tree.model import Phase

# Product, softmax, product, with whatever the program does to the scores or beside them.
_CHAIN = r"b[^bs|]{0,16}s[^bs|]{0,12}b"

_FUSED_SHARE = 0.5


_BATCHED = r"^aten::(bmm|baddbmm)$"
_UNTOLD = (
    "Attention spelled out as products and a softmax, {chains} {per} ({total}): the score matrix goes through memory."
)


def _of_tree(contexts: Contexts) -> Outcome:
    if not contexts.kernels.any():
        return NotApplicable("the tree holds no kernels")
    tree, forward = contexts.tree, contexts.tree.phase != Phase.BACKWARD
    softmax = contexts.outermost(contexts.operators(r"^aten::_?softmax$") & forward)
    softmax &= ~contexts.within(contexts.operators(r"scaled_dot_product|Backward"))
    products = contexts.outermost(contexts.operators(r"^aten::(matmul|bmm|baddbmm|einsum)$") & forward)
    products &= contexts.holding(contexts.operators(_BATCHED))
    # In one function and module: two batched products for each softmax.
    calls = np.bincount(
        np.maximum(tree.parent, 0), weights=np.where(products, contexts.calls, 0.0), minlength=len(tree)
    )
    at = np.flatnonzero(softmax & (tree.parent >= 0))
    at = at[calls[tree.parent[at]] >= 2 * contexts.calls[at] * _NEARLY]
    if len(at) == 0:
        return Clear("no softmax beside two batched products in one function")
    chains = float(contexts.calls[at].sum())
    mask = mask_of(len(tree), at)
    mask |= products & np.isin(tree.parent, tree.parent[at])
    rows = np.flatnonzero(mask)
    whole = contexts.within(mask)
    return Found(
        values={
            "chains": counted(chains, "chain", "chains"),
            "per": contexts.per,
            "total": time(float(contexts.device[whole].sum())),
        },
        title=_UNTOLD,
        saves=contexts.saving(whole),
        confidence="low",
        evidence=[
            table(
                "The chains, as far as contexts tell",
                [headed(SITE, "operator"), headed(COUNT, "calls"), headed(TIME, "device time")],
                contexts.by_site(rows, count=contexts.calls[rows], time=contexts.inside(contexts.device)[rows]),
            )
        ],
        location=contexts.location(int(at[0])),
    )


_NEARLY = 0.99


@rule(
    "KER109",
    "hand-written-attention",
    of_tree=_of_tree,
    title="Attention spelled out as products and a softmax, {chains} {per} ({total}): the {scores} score matrix goes "
    "through memory.",
)
def hand_written_attention(facts: Facts) -> Outcome:
    """Attention is written as product, scaling, mask, softmax, product, each an operation of its own.

    The score matrix, sequence length squared, goes to memory and back between all of them. A fused kernel keeps it on
    the chip.

    Costs: the chains' device time, less what a fused kernel needs for the two products at half of the peak.

    Fix: `torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=...)`.

    Verify: one fused kernel replaces the chain, and the results agree within the type's precision.

    Silent: for the reference path of scaled_dot_product_attention itself (KER108). Where the attention weights are
    returned to the caller, the chain has to stay.

    Source: huggingface/blog torch-attention-profile.
    """
    trace, leaves = facts.trace, facts.leaves
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    chains = list(leaves.find(_CHAIN))
    if not chains:
        return Clear("no product, softmax and product in a row")
    if not facts.health.shapes:
        return NeedsCapture("shapes, to tell attention from other products: `record_shapes=True`")
    fallback = outermost(facts, named(facts, (Kind.OPERATOR,), "aten::_scaled_dot_product_attention_math"))
    firsts = leaves.operator[[int(chain[0]) for chain in chains]]
    own = enclosing(facts, fallback, firsts) < 0
    kept = [
        _of_scores(facts, chain, found[0])
        for chain, mine in zip(chains, own.tolist(), strict=True)
        if mine and (found := _scores(facts, chain)) is not None
    ]
    if not kept:
        return Clear("the products around softmax have different batches, or belong to the reference path")
    steps = facts.steady_count
    total = sum(float(leaves.time[chain].sum()) for chain in kept) / steps
    fused, scores = [], 0
    rate = 0.0
    for chain in kept:
        found = _scores(facts, chain)
        if found is None:
            continue
        matrix, flops = found
        scores = max(scores, matrix.bytes)
        rate = facts.device.peak.flop_rate(matrix.dtype) if facts.device.peak else 0.0
        fused.append(flops / (_FUSED_SHARE * rate) * 1e9 if rate else 0.0)
    example = kept[0]
    rows: list[dict[str, Any]] = [
        {
            "operator": trace.name_of(int(leaves.operator[leaf])),
            "shapes": shapes_label(facts, int(leaves.operator[leaf])),
            "time": float(leaves.time[leaf]),
        }
        for leaf in example.tolist()
    ]
    device = leaves.rows(np.concatenate(kept))
    return Found(
        values={
            "chains": counted(len(kept) / steps, "chain", "chains"),
            "per": per(facts),
            "total": time(total),
            "scores": byte_size(scores),
        },
        change=fuse(facts, [trace.device_work[leaves.rows(chain)] for chain in kept], fused),
        spread=0.3,
        confidence="medium" if rate else "low",
        evidence=[table("One of the chains", [OPERATOR, SHAPES, headed(TIME, "device time")], rows, limit=12)],
        location=locate(facts, int(leaves.operator[int(example[0])])),
        events=claim(facts, device),
    )


def _scores(facts: Facts, chain: np.ndarray) -> tuple[Tensor, float] | None:
    """The score matrix of a chain and the FLOPs of both products; None if their batches differ."""
    first = facts.signatures.of(int(facts.leaves.operator[int(chain[0])]))
    last = facts.signatures.of(int(facts.leaves.operator[int(chain[-1])]))
    if first is None or last is None:
        return None
    left = [tensor for tensor in first.tensors if len(tensor.shape) == 3][-2:]
    right = [tensor for tensor in last.tensors if len(tensor.shape) == 3][-2:]
    if len(left) < 2 or len(right) < 2:
        return None
    (query, key), (weights, value) = left, right
    scores = Tensor((query.shape[0], query.shape[1], key.shape[2]), query.dtype)
    if weights.shape != scores.shape:
        return None
    return scores, 2.0 * scores.numel * (query.shape[2] + value.shape[2])


def _of_scores(facts: Facts, chain: np.ndarray, scores: Tensor) -> np.ndarray:
    """The operators of a chain that work on the score matrix; others merely stand between, such as what makes a mask."""

    def works_on_it(leaf: int) -> bool:
        call = facts.signatures.of(int(facts.leaves.operator[leaf]))
        return call is not None and any(tensor.numel == scores.numel for tensor in call.tensors)

    inner = [leaf for leaf in chain[1:-1].tolist() if works_on_it(leaf)]
    return np.array([int(chain[0]), *inner, int(chain[-1])])
