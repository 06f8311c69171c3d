"""KER108."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.of_tree.tree_facts import Contexts
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, enclosing, named, outermost, per
from lanewise.diagnose.what_if.remedies import fuse
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, DTYPE, SHAPES, SITE, TIME, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import time
from lanewise.trace.schema import Kind

# A fused kernel reaches at least this share of the peak for its products.
_FUSED_SHARE = 0.5


def _of_tree(contexts: Contexts, *, products_from: int) -> Outcome:
    if not contexts.kernels.any():
        return NotApplicable("the tree holds no kernels")
    reference = contexts.outermost(contexts.operators(r"^aten::_scaled_dot_product_attention_math$"))
    products = contexts.inside(np.where(contexts.operators(r"^aten::(bmm|baddbmm|mm)$"), contexts.calls, 0.0))
    reference &= products >= products_from * contexts.calls
    rows = np.flatnonzero(reference & (contexts.calls > 0))
    if len(rows) == 0:
        return Clear("no attention call takes the reference path")
    spent = contexts.inside(contexts.device)[rows]
    return Found(
        values={
            "calls": counted(float(contexts.calls[rows].sum()), "call", "calls"),
            "per": contexts.per,
            "total": time(float(spent.sum())),
        },
        saves=contexts.saving(contexts.within(reference)),
        confidence="medium",
        evidence=[
            table(
                "Attention on the reference path",
                [SITE, headed(COUNT, "calls"), headed(TIME, "device time")],
                contexts.by_site(rows, count=contexts.calls[rows], time=spent),
            )
        ],
        location=contexts.location(int(rows[np.argmax(spent)])),
    )


@rule(
    "KER108",
    "sdpa-math-fallback",
    of_tree=_of_tree,
    title="{calls} {per} to scaled_dot_product_attention on the unfused reference path ({total}): the scores are "
    "stored and read several times.",
)
def sdpa_math_fallback(facts: Facts, *, products_from: int = 2) -> Outcome:
    """No fused attention kernel accepted the call, so attention runs as separate products and a softmax.

    The reference path writes the whole score matrix to memory and reads it back for scaling, masking and softmax, where
    the fused kernels keep it on the chip.

    Costs: its device time, less what a fused kernel needs for the same products at half of the peak.

    Fix: use fp16 or bf16, `is_causal=True` in place of a dense mask, a head size that the kernels support; wrap the
    call in `torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)` to be told why it was refused.

    Verify: one fused kernel (`flash_fwd`, `fmha`, `sdpa`) replaces the products and the softmax.

    Silent: for efficient attention in fp32 (`fmha_cutlassF_f32`): that path is fused.

    Source: huggingface/blog torch-attention-profile.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    calls = outermost(
        facts, facts.steady_events(named(facts, (Kind.OPERATOR,), "aten::_scaled_dot_product_attention_math"))
    )
    if len(calls) == 0:
        return Clear("no attention call takes the reference path")
    leaves = facts.leaves
    owner = enclosing(facts, calls, leaves.operator)
    product = np.isin(trace.name[leaves.operator], trace.name_ids("aten::bmm", "aten::baddbmm", "aten::mm"))
    products = np.array([int(np.count_nonzero(product & (owner == call))) for call in calls.tolist()])
    calls = calls[products >= products_from]
    if len(calls) == 0:
        return Clear("the reference path launches no products of its own")
    steps = facts.steady_count
    inside = np.isin(owner, calls)
    total = float(leaves.time[inside].sum()) / steps
    example, group = facts.signatures.groups(calls)
    rows: list[dict[str, Any]] = []
    least = 0.0
    least_of = np.full(len(calls), np.inf)
    for at, call in enumerate(example.tolist()):
        mine = calls[group == at]
        signature = facts.signatures.of(call)
        query, key = (signature.tensor(0), signature.tensor(1)) if signature else (None, None)
        rate = facts.device.peak.flop_rate(query.dtype) if facts.device.peak and query else 0.0
        if query and key and rate and len(query.shape) == 4:
            flops = 4.0 * query.numel * key.shape[2]
            least += flops / (_FUSED_SHARE * rate) * 1e9 * len(mine) / steps
            least_of[group == at] = flops / (_FUSED_SHARE * rate) * 1e9
        rows.append(
            {
                "shapes": shapes_label(facts, call),
                "dtype": query.dtype.removeprefix("c10::") if query else "",
                "mask": "dense" if signature and signature.tensor(3) else "none or causal",
                "count": len(mine) / steps,
                "time": float(leaves.time[np.isin(owner, mine)].sum()) / len(mine),
            }
        )
    return Found(
        values={"calls": counted(len(calls) / steps, "call", "calls"), "per": per(facts), "total": time(total)},
        change=fuse(
            facts, [trace.device_work[leaves.rows(np.flatnonzero(owner == call))] for call in calls.tolist()], least_of
        ),
        spread=0.3,
        confidence="high" if least else "low",
        evidence=[
            table(
                "Attention on the reference path",
                [SHAPES, DTYPE, TableColumn("mask", "text", "mask"), COUNT, headed(TIME, "time of a call")],
                rows,
            )
        ],
        location=locate(facts, int(calls[0])),
        events=claim(facts, leaves.rows(np.flatnonzero(inside))),
    )
