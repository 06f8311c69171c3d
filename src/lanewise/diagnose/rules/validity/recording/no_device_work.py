"""MEA109."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import OPERATOR, SHARE, TIME
from lanewise.report.quantity import share, text, time
from lanewise.trace.schema import Kind


@rule(
    "MEA109",
    "no-device-work",
    kind="validity",
    title="No device work was recorded: the model ran on the CPU. {share} of the operators' time is matrix work, most "
    "of it {operator}.",
)
def no_device_work(facts: Facts, *, matrix_share_from: float = 0.5) -> Outcome:
    """The program computed on the CPU although it does the kind of work that a device is for.

    A model that was never moved, a CPU-only build of torch, or a device that was not visible to the process all end
    like this, silently.

    Costs: usually a factor of 10 to 100; the trace cannot say how much.

    Fix: move the model and its inputs (`model.to("cuda")`, `batch.to("cuda")`); check `torch.cuda.is_available()` and
    `CUDA_VISIBLE_DEVICES`.

    Verify: a device lane with kernels appears in the recording.

    Silent: when matrix products and convolutions are half of the operators' time or less: data loading and CPU
    post-processing belong on the CPU.

    Source: common practice.
    """
    trace = facts.trace
    if len(trace.device_work) or len(trace.links.launches):
        return NotApplicable("the trace holds device work or launches")
    if not facts.on_cpu:
        return NotApplicable(f"the program used a device: {facts.device_signs or 'it asks for memory of one'}")
    operators = trace.of(Kind.OPERATOR)
    own = facts.host.self_time[operators]
    total = int(own.sum())
    if total == 0:
        return NotApplicable("the trace holds no operators")
    matrix = facts.matrix_names[trace.name[operators]]
    part = float(own[matrix].sum()) / total
    if part <= matrix_share_from:
        return Clear(f"no device work; matrix work is {part:.0%} of the operators' time")
    time_of = np.bincount(trace.name[operators], weights=own, minlength=len(trace.names))
    top = np.argsort(-time_of, kind="stable")[:8]
    rows = [
        {"operator": trace.names[name], "time": float(time_of[name]), "share": float(time_of[name]) / total}
        for name in top.tolist()
        if time_of[name] > 0
    ]
    heaviest = operators[matrix][np.argmax(own[matrix])]
    main = int(np.argmax(np.where(facts.matrix_names, time_of, 0)))
    return Found(
        values={"share": share(part), "operator": text(trace.names[main]), "time": time(total)},
        evidence=[table("Operators by self time", [OPERATOR, TIME, SHARE], rows)],
        location=locate(facts, int(heaviest)),
    )
