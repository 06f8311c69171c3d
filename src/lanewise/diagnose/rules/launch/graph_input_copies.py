"""LAU107."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import kernel_label, locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted, per
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.facts import Facts
from lanewise.measure.launch.graph_inputs import graph_inputs
from lanewise.report.evidence_columns import OPERATOR, TIME
from lanewise.report.model import TableColumn
from lanewise.report.quantity import share, time


@rule(
    "LAU107",
    "graph-input-copies",
    title="{copies} {per} to bring inputs to the fixed addresses of a CUDA graph: {device} on the device ({share} of "
    "the region), {host} on the host.",
)
def graph_input_copies(facts: Facts, *, device_share: float = 0.05, host_share: float = 0.1) -> Outcome:
    """Inputs are copied into static buffers before every replay of a CUDA graph.

    A graph reads its inputs where they were when it was captured. Inputs that live elsewhere in the next call are
    copied there first: one more pass over them on the device, and an operator on the host.

    Costs: the copies (device-bound) or the operators that start them (host-bound).

    Fix: keep inputs at fixed addresses: write the next batch into the same tensor, or mark weights and buffers static
    (`torch._dynamo.mark_static_address`). Where the device is the bottleneck anyway, run without graphs.

    Verify: no copies between the begin of the region and its graph launch.

    Silent: for copies inside the graph (CMP106) and copies from the host, below 5 % of the region's device time and 10
    % of its host time.

    Source: pytorch/pytorch#154301; 88 of 288 us on our H100.
    """
    trace = facts.trace
    found = graph_inputs(facts)
    if found is None:
        return NotApplicable("no graph launch in steady steps")
    of_device = found.device_ns / max(1, found.of_device_ns)
    of_host = found.host_ns / max(1, found.of_host_ns)
    if of_device <= device_share and of_host <= host_share:
        return Clear(f"copies before graph launches are {of_device:.1%} of device time and {of_host:.1%} of host time")
    steps = facts.steady_count
    events = trace.device_work[found.row]
    longest = found.row[np.argsort(-trace.duration[events], kind="stable")]
    rows = [
        {
            "copy": kernel_label(facts, int(trace.device_work[row])),
            "operator": trace.name_of(int(trace.links.operator[row])) if trace.links.operator[row] >= 0 else "",
            "time": int(trace.duration[trace.device_work[row]]),
        }
        for row in longest.tolist()
    ]
    calls = trace.links.launch[found.row]
    return Found(
        values={
            "copies": counted(len(found.row) / steps, "copy", "copies"),
            "device": time(found.device_ns / steps),
            "host": time(found.host_ns / steps),
            "share": share(of_device),
            "per": per(facts),
        },
        change=remove(facts, events),
        evidence=[
            table("Copies before graph launches", [TableColumn("copy", "text", "device op"), OPERATOR, TIME], rows)
        ],
        location=locate(facts, int(calls[0])),
        events=[*events.tolist(), *calls.tolist()],
    )
