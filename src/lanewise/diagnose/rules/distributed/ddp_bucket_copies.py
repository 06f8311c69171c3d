"""DIS106."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import claim, counted, device_sum, enclosing, of_step, outermost, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, HOST, NAME, headed
from lanewise.report.quantity import time
from lanewise.trace.schema import Kind

_DDP = r"^(torch\.distributed\.)?ddp\.reducer::"
_COPY = r"^(torch\.distributed\.)?ddp\.reducer::(copy_bucket_to_grad|copy_grad_to_bucket|mul_out)"


@rule(
    "DIS106",
    "ddp-bucket-copies",
    title="DDP copies {gradients} {per} between its buckets and `.grad`: {host} on the host, {device} on the GPU.",
)
def ddp_bucket_copies(facts: Facts, *, share_from: float = 0.01) -> Outcome:
    """After each all-reduce DDP copies the averaged gradients out of its bucket into the parameters' `.grad`.

    With `gradient_as_bucket_view` the gradients are views into the bucket, and nothing needs to be copied; it also
    saves the memory of one set of gradients.

    Costs: the copies' host time, or their device time.

    Fix: `DistributedDataParallel(model, gradient_as_bucket_view=True)`.

    Verify: no `copy_bucket_to_grad` rows.

    Silent: without DDP. Communication hooks and optimizers that keep their own gradient tensors need the copies.

    Source: 72 copies and 1.4 to 2.2 ms of host time per step of a small transformer on our H100 pair.
    """
    trace, leaves = facts.trace, facts.leaves
    rows = np.flatnonzero(np.isin(trace.kind, (Kind.OPERATOR, Kind.ANNOTATION)) & trace.name_mask(_COPY)[trace.name])
    copies = outermost(facts, facts.steady_events(rows))
    if len(copies) == 0:
        ddp = trace.name_mask(r"^DistributedDataParallel\.|" + _DDP)[trace.name].any()
        return Clear("DDP's gradients are views into its buckets") if ddp else NotApplicable("no DDP in steady steps")
    steps = facts.steady_count
    inside = np.flatnonzero(enclosing(facts, copies, leaves.operator) >= 0)
    device = leaves.rows(np.union1d(inside, np.flatnonzero(np.isin(leaves.operator, copies))))
    device_ns = device_sum(facts, device)
    host_ns = float(trace.duration[copies].sum()) / steps
    if max(device_ns, host_ns) < share_from * facts.steps.step_ns:
        return Clear(f"bucket copies take {of_step(facts, max(device_ns, host_ns)):.1%} of the step")
    names = np.unique(trace.name[copies])
    return Found(
        values={
            "gradients": counted(len(copies) / steps, "gradient", "gradients"),
            "per": per(facts),
            "host": time(host_ns),
            "device": time(device_ns),
        },
        change=remove(facts, np.concatenate((copies, trace.device_work[device]))),
        evidence=[
            table(
                "Copies",
                [headed(NAME, "row"), COUNT, HOST],
                [
                    {
                        "name": trace.names[int(name)],
                        "count": int((trace.name[copies] == name).sum()) / steps,
                        "host": float(trace.duration[copies[trace.name[copies] == name]].sum()) / steps,
                    }
                    for name in names.tolist()
                ],
            )
        ],
        location=locate(facts, int(copies[0])),
        events=[*claim(facts, device), *copies.tolist()],
    )
