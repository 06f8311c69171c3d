"""MEA103."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.measure.facts import Facts
from lanewise.measure.launch.host_lanes import slice_around
from lanewise.measure.validity.first_step import overhead_rows
from lanewise.report.evidence_columns import INSIDE, START, STEP, TIME, headed
from lanewise.report.model import TableColumn
from lanewise.report.quantity import count, text, time

_ROW = "Activity Buffer Request"


@rule(
    "MEA103",
    "profiler-buffer-request",
    kind="validity",
    title="{stall} of {where} is the profiler asking for an event buffer while {operator} is stalled: the "
    "profiler's time, not the program's.",
)
def profiler_buffer_request(facts: Facts) -> Outcome:
    """The profiler needed another buffer for its records, and a thread of the program waited for it.

    CUPTI, the library under the profiler, collects records in host buffers of 4 MiB. Asking for one can take
    milliseconds, and the thread that happens to launch something meanwhile stands still inside its operator. The
    operator looks slow; it is not. No GPU memory is allocated.

    Costs: nothing without a profiler. The time is of class unknown here, so that no finding counts it.

    Fix: record with `warmup` >= 1 and more active steps, and leave out the step in which it happens: one request in a
    long recording touches one step.

    Verify: with 20 active steps the row appears once.

    Silent: where the threads kept working during the request: one of 2.9 ms overlapped 23 normal API calls and cost
    nothing.

    Source: huggingface/blog torch-profiler; pytorch/kineto#1020; 2.4 and 2.6 ms on our H100.
    """
    trace = facts.trace
    requests = overhead_rows(facts, _ROW)
    if len(requests) == 0:
        return Clear("no buffer request; builds before CUDA 12.7 write none")
    stalls = facts.classes.stalls
    # A stall is the union of requests that blocked a thread, so a request belongs to it if it starts inside one.
    at = np.searchsorted(stalls.start, trace.start[requests], side="right") - 1
    blocked = (at >= 0) & (trace.start[requests] < stalls.end[np.maximum(at, 0)]) if len(stalls.start) else at >= 0
    harmful = requests[blocked]
    step = trace.steps.of_event[harmful]
    harmful, step = harmful[step >= 0], step[step >= 0]
    if len(harmful) == 0:
        return Clear(f"{len(requests)} buffer request(s), during which the threads kept working or no step ran")
    holder = slice_around(facts, harmful)
    numbers = trace.steps.number[step]
    where = f"step #{numbers[0]}" if trace.steps.recorded else "the recording"
    if len(np.unique(step)) > 1:
        where = f"steps {', '.join(f'#{n}' for n in np.unique(numbers).tolist()[:5])}"
    rows = [
        {
            "step": int(number),
            "start": int(trace.start[event] - trace.steps.start[row]),
            "time": int(trace.duration[event]),
            "inside": trace.name_of(inside) if inside >= 0 else "",
            "own": int(trace.duration[inside]) if inside >= 0 else -1,
        }
        for event, row, number, inside in zip(
            harmful.tolist(), step.tolist(), numbers.tolist(), holder.tolist(), strict=True
        )
    ]
    first = int(holder[0])
    return Found(
        values={
            "stall": time(float(trace.duration[harmful].sum())),
            "where": text(where),
            "operator": text(trace.name_of(first) if first >= 0 else "the host"),
            "requests": count(len(harmful)),
        },
        evidence=[
            table(
                "Buffer requests that blocked a thread",
                [
                    STEP,
                    headed(START, "after the step began"),
                    headed(TIME, "request"),
                    INSIDE,
                    TableColumn("own", "time", "which took"),
                ],
                rows,
            )
        ],
        steps=np.unique(step).tolist() if trace.steps.recorded else (),
        location=locate(facts, first),
    )
