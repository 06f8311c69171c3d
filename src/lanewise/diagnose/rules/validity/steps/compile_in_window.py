"""MEA106."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import table
from lanewise.diagnose.rule import Clear, Found, Outcome, rule
from lanewise.measure.compile.compilation import compile_time_of_step, outer_compile_rows
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import ROW, STEP, TIME
from lanewise.report.quantity import count, text, time


@rule(
    "MEA106",
    "compile-in-window",
    kind="validity",
    title="{time} of compilation or graph capture runs inside the recording, in {where}; those steps are left out of "
    "all numbers.",
)
def compile_in_window(facts: Facts, *, fewer_than: float = 0.5) -> Outcome:
    """Something is compiled, tuned or captured in some of the recorded steps.

    torch.compile compiles on the first call with new shapes, autotuning runs candidate kernels, and CUDA-graph trees
    need a warm-up and a recording call before they replay. A step with any of that describes the compiler.

    Costs: once, the time of the compile rows; the steps are left out.

    Fix: a longer warm-up before recording. CUDA-graph trees need three calls: warm-up, record, replay.

    Verify: no row ending in `(dynamo_timed)`, no `CUDAGraphNode.record` and no capture call in the recording.

    Silent: when half of the steps or more compile: that is no warm-up but the program's normal state, see CMP102
    (recompilation) and LAU108 (graphs recorded again and again).

    Source: pytorch test/dynamo/test_profiler.py; PyTorch's documentation of CUDA-graph trees.
    """
    trace, steps = facts.trace, facts.trace.steps
    rows = outer_compile_rows(facts)
    if len(rows) == 0:
        return Clear("no compile, autotuning or capture rows")
    of_step = compile_time_of_step(facts)
    affected = np.flatnonzero(of_step > 0)
    if steps.recorded and len(affected) >= fewer_than * len(steps):
        return Clear(f"{len(affected)} of {len(steps)} steps compile: CMP102 or LAU108 speak about that")
    if len(affected) == 0:
        return Clear("compile rows lie outside the recorded steps")
    numbers = steps.number[affected].tolist()
    where = f"step{'s' if len(numbers) > 1 else ''} {', '.join(f'#{n}' for n in numbers[:6])}"
    inside = rows[steps.of_event[rows] >= 0]
    longest = inside[np.argsort(-trace.duration[inside], kind="stable")][:8].tolist()
    found = [
        {
            "row": trace.name_of(event),
            "step": int(steps.number[steps.of_event[event]]),
            "time": int(trace.duration[event]),
        }
        for event in longest
    ]
    return Found(
        values={
            "time": time(float(of_step.sum())),
            "where": text(where if steps.recorded else "an unmarked recording"),
            "steps": count(len(affected)),
        },
        evidence=[table("Compile rows, outermost", [ROW, STEP, TIME], found)],
        steps=affected.tolist() if steps.recorded else (),
        title=None
        if steps.recorded
        else "{time} of compilation or graph capture runs inside the recording, which marks no steps: it is part of "
        "every number.",
    )
