"""KER112."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.evidence import locate, shapes_label, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, enclosing, host_cost, named, outermost, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, OPERATOR, SHAPES, headed
from lanewise.report.quantity import time
from lanewise.trace.schema import Kind

_CONVOLUTIONS = ("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution")


@rule(
    "KER112",
    "conv-bias-before-norm",
    title="{pairs} {per} with a bias that the batch normalisation after them cancels: {device} on the GPU, "
    "{host} on the host.",
)
def conv_bias_before_norm(facts: Facts) -> Outcome:
    """A convolution adds a bias per channel, and the batch normalisation after it subtracts the channel's mean.

    Whatever the bias is, the mean contains it, so the result does not depend on it.

    Costs: the addition, where it is a kernel of its own (device-bound), or its launch (host-bound).

    Fix: `bias=False` in the convolution; for inference fold the normalisation into the convolution's weights.

    Verify: the additions behind the convolutions are gone, the results are the same.

    Silent: without a batch normalisation behind it.

    Source: torch/profiler/_pattern_matcher.py; PyTorch's performance tuning guide.
    """
    trace = facts.trace
    if not facts.kernel_groups:
        return NotApplicable("the trace holds no kernels in steady steps")
    convolutions = outermost(facts, facts.steady_events(named(facts, (Kind.OPERATOR,), *_CONVOLUTIONS)))
    norms = outermost(facts, facts.steady_events(named(facts, (Kind.OPERATOR,), "aten::batch_norm")))
    if len(convolutions) == 0 or len(norms) == 0:
        return NotApplicable("no convolution and batch normalisation in steady steps")
    if not facts.health.shapes:
        return NeedsCapture("shapes, to see whether the convolutions have a bias: `record_shapes=True`")
    pairs = _followed(facts, convolutions, norms)
    biased = [convolution for convolution, norm in pairs if _has_bias(facts, convolution, norm)]
    if not biased:
        return Clear("the convolutions in front of batch normalisations have no bias")
    roots = np.array(biased, dtype=np.int64)
    adds = facts.steady_events(named(facts, (Kind.OPERATOR,), "aten::add_", "aten::add"))
    adds = adds[enclosing(facts, roots, adds) >= 0]
    leaves = facts.leaves
    mine = np.flatnonzero(np.isin(leaves.operator, adds))
    rows = leaves.rows(mine)
    calls = trace.links.launch[rows]
    steps = facts.steady_count
    device_ns = float(leaves.time[mine].sum()) / steps
    host_ns = min(host_cost(facts, calls), float(trace.duration[adds].sum()) / steps)
    example, group = facts.signatures.groups(roots)
    table_rows: list[dict[str, Any]] = [
        {
            "operator": trace.name_of(int(event)),
            "shapes": shapes_label(facts, int(event)),
            "count": int((group == at).sum()) / steps,
        }
        for at, event in enumerate(example.tolist())
    ]
    return Found(
        values={
            "pairs": counted(len(roots) / steps, "convolution", "convolutions"),
            "per": per(facts),
            "device": time(device_ns),
            "host": time(host_ns),
        },
        change=remove(facts, trace.device_work[rows]),
        evidence=[
            table(
                "Convolutions with a bias that the next operator removes",
                [OPERATOR, headed(SHAPES, "input, weight, bias"), COUNT],
                table_rows,
            )
        ],
        location=locate(facts, int(roots[0])),
        events=claim(facts, rows),
    )


def _followed(facts: Facts, convolutions: np.ndarray, norms: np.ndarray) -> list[tuple[int, int]]:
    """Convolutions whose next operator on the lane is a batch normalisation, with it."""
    trace = facts.trace
    top = outermost(facts, facts.steady_events(trace.of(Kind.OPERATOR)))
    additions = top[np.isin(trace.name[top], trace.name_ids("aten::add_"))]
    counting = [event for event in additions.tolist() if _counts_a_batch(facts, event)]
    top = top[~np.isin(top, counting)]
    follower = dict(zip(top[:-1].tolist(), top[1:].tolist(), strict=True))
    norm = set(norms.tolist())
    return [
        (convolution, follower[convolution])
        for convolution in convolutions.tolist()
        if follower.get(convolution) in norm
    ]


def _counts_a_batch(facts: Facts, addition: int) -> bool:
    """Whether an addition is that of one integer, `num_batches_tracked`, with which a normalisation in training begins."""
    call = facts.signatures.of(addition)
    counter = call.tensor(0) if call is not None else None
    return counter is not None and counter.shape == () and counter.dtype in ("long int", "long")


def _has_bias(facts: Facts, convolution: int, norm: int) -> bool:
    call, after = facts.signatures.of(convolution), facts.signatures.of(norm)
    if call is None or after is None:
        return False
    weight, bias, image = call.tensor(1), call.tensor(2), after.tensor(0)
    if weight is None or bias is None or image is None or len(image.shape) < 2:
        return False
    return bias.shape == (weight.shape[0],) == (image.shape[1],)
