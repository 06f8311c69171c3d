"""OPT107."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import named, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import COUNT, HOST, OPERATOR
from lanewise.report.quantity import count, time
from lanewise.trace.schema import Kind

_NODE = r"^autograd::engine::evaluate_function"
# What the engine does with each gradient that a node returns; Older releases of torch ask with `any` and `is_nonzero`.
_CHECK = ("aten::isnan", "aten::ne", "aten::_is_any_true", "aten::any", "aten::item", "aten::is_nonzero")


@rule(
    "OPT107",
    "anomaly-detection",
    title="Each gradient of the backward pass is searched for NaN, {checks} {per}: anomaly detection is on.",
)
def anomaly_detection(facts: Facts) -> Outcome:
    """Autograd looks for NaN in every gradient, and keeps a traceback of every forward operator.

    `torch.autograd.set_detect_anomaly(True)` is meant for finding the operator that made a NaN, and stays on easily. Each
    check reads the gradient once more and asks for the answer on the host, which waits for the device.

    Costs: what the checks launch and wait for. The tracebacks cost more where operators are small, and are not counted:
    they hide in the operators' own time.

    Fix: remove `torch.autograd.set_detect_anomaly(True)` and `torch.autograd.detect_anomaly()`; trainers have an option of
    their own, such as `Trainer(detect_anomaly=False)`. Turn it on again when a NaN is seen.

    Verify: no `aten::isnan` directly under `autograd::engine::evaluate_function` rows is left.

    Silent: for `isnan` that the program calls itself, in the forward pass or inside of a backward of its own, and with
    `check_nan=False`, which keeps tracebacks only.

    Source: PyTorch's documentation of anomaly detection and its performance tuning guide (disable debugging APIs). A
    training step of 0.4 to 0.6 ms on a CPU took 2.1 to 3.4 ms with it, 1.9 to 2.4 ms with the tracebacks only.
    """
    trace, parent = facts.trace, facts.host.parent
    node = trace.name_mask(_NODE)
    if not node[trace.name[trace.of(Kind.OPERATOR)]].any():
        return NotApplicable("no backward pass is recorded")
    checks = facts.steady_events(named(facts, (Kind.OPERATOR,), *_CHECK))
    checks = checks[(parent[checks] >= 0) & node[trace.name[np.maximum(parent[checks], 0)]]]
    searches = np.isin(trace.name[checks], trace.name_ids("aten::isnan"))
    if not searches.any():
        return Clear("no gradient is searched for NaN")
    steps = facts.steady_count
    rows: list[dict[str, object]] = []
    for name in np.unique(trace.name[checks]).tolist():
        mine = checks[trace.name[checks] == name]
        host = float(trace.duration[mine].sum()) / steps
        rows.append({"operator": trace.names[name], "count": len(mine) / steps, "host": host})
    rows.sort(key=lambda row: str(row["operator"]))
    return Found(
        values={
            "checks": count(round(int(searches.sum()) / steps)),
            "host": time(float(trace.duration[checks].sum()) / steps),
            "per": per(facts),
        },
        change=remove(facts, checks),
        confidence="high",
        evidence=[table("What the engine does with gradients", [OPERATOR, COUNT, HOST], rows)],
        events=checks.tolist(),
    )
