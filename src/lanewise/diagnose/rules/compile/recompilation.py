"""CMP102."""

from __future__ import annotations

import itertools

import numpy as np

from lanewise.diagnose.evidence import locate, table
from lanewise.diagnose.rule import Clear, Found, NotApplicable, Outcome, rule
from lanewise.diagnose.what_if.remedies import remove
from lanewise.measure.compile.compilation import compile_ids, compile_time_of_step, outer_compile_rows
from lanewise.measure.facts import Facts
from lanewise.report.evidence_columns import SHARE, TIME, headed
from lanewise.report.model import Block, TableBlock, TableColumn, TextBlock
from lanewise.report.quantity import count, share, text, time


@rule(
    "CMP102",
    "recompilation",
    title="torch.compile compiles in {steps} of {recorded} steps ({ids}): {time} of {period} per step as recorded.",
)
def recompilation(facts: Facts, *, steps_from: float = 0.5) -> Outcome:
    """The program compiles again and again instead of once.

    A compiled function is valid for the shapes, types and Python values that it was compiled with (its guards). Input
    that breaks a guard starts another compilation, hundreds of milliseconds on the host with the device idle.

    Costs: the time of the compile rows. The profiler records hundreds of rows while compiling and makes it several
    times as long as it is: the step without the profiler bounds the gain.

    Fix: `torch.compile(dynamic=True)` or `torch._dynamo.mark_dynamic` for dimensions that vary; scalars such as the
    learning rate as tensors; or pad to a few sizes. A kernel for one exact shape is worth nothing if shapes vary.
    `TORCH_LOGS=recompiles` names the guard that failed.

    Verify: the second number of the compile id stays the same, and no compile row is left in steady steps.

    Silent: when fewer than half of the steps compile (MEA106).

    Source: PyTorch's recompilation guide; our H100 run with a new shape per step: 291 ms a step under the profiler, 46
    ms without.
    """
    trace, steps = facts.trace, facts.trace.steps
    rows = outer_compile_rows(facts)
    regions = facts.regions
    if len(rows) == 0 and not regions.present:
        return NotApplicable("nothing is compiled")
    if not steps.recorded or len(steps) < 2:
        return NotApplicable("the trace marks too few steps to tell the first compilation from a repeated one")
    of_step = compile_time_of_step(facts)
    # Capturing CUDA graphs again is LAU108's matter.
    names = trace.name_mask(r"\(dynamo_timed\)$|compile_id=")
    compiling = rows[names[trace.name[rows]]] if len(rows) else rows
    affected = np.unique(steps.of_event[compiling])
    affected = affected[affected >= 0]
    ids = [(step, k, m) for step, k, m in compile_ids(facts) if step >= 0]
    if len(affected) < steps_from * len(steps):
        rising = _rising(facts)
        if not rising:
            return Clear(f"{len(affected)} of {len(steps)} steps compile")
        return Found(
            title="Compiled regions change their index from step to step ({ids}): the program compiles again although "
            "no compile row was recorded.",
            values={"ids": text(rising)},
            confidence="low",
            location=locate(facts, int(regions.region[0])),
        )
    inside = facts.steady_events(facts.compile_rows)
    steady = facts.steps.steady
    per_step = float(of_step[steady].mean()) if steady.any() else float(of_step[affected].mean())
    label = ", ".join(dict.fromkeys(f"{k}/{m}" for _, k, m in ids[:6])) or "no compile id recorded"
    evidence: list[Block] = [_phases(facts, compiling, per_step)] if len(facts.steady_events(compiling)) else []
    if facts.steps.rebased:
        evidence.append(
            TextBlock(
                "Without the profiler a step takes {step} in all: recording stretches compilation, so that bounds the "
                "gain.",
                {"step": time(facts.steps.step_ns)},
            )
        )
    return Found(
        values={
            "steps": count(len(affected)),
            "recorded": count(len(steps)),
            "ids": text(("compile ids " if ids else "") + label),
            "time": time(per_step),
            "period": time(facts.steps.period_ns),
            "share": share(per_step / max(1.0, facts.steps.period_ns)),
        },
        change=remove(facts, inside),
        bound=True,
        evidence=evidence,
        steps=affected.tolist(),
        location=locate(facts, int(compiling[0])),
        events=inside.tolist(),
    )


def _rising(facts: Facts) -> str:
    """Frames whose index M grows from one steady step to the next, as "K: M1, M2", or ""."""
    trace, regions = facts.trace, facts.regions
    if len(regions.region) == 0:
        return ""
    step = trace.steps.of_event[regions.region]
    steady = facts.is_steady(step)
    for frame in np.unique(regions.frame[steady & (regions.frame >= 0)]).tolist():
        mine = steady & (regions.frame == frame)
        highest = [int(regions.index[mine & (step == s)].max()) for s in np.unique(step[mine])]
        if len(highest) >= 3 and all(b > a for a, b in itertools.pairwise(highest)):
            return f"frame {frame}: {', '.join(map(str, highest[:6]))}"
    return ""


def _phases(facts: Facts, compiling: np.ndarray, per_step: float) -> TableBlock:
    """Compile rows below the outermost ones, by time."""
    trace = facts.trace
    rows = facts.steady_events(facts.compile_rows)
    rows = rows[trace.name_mask(r"\(dynamo_timed\)$")[trace.name[rows]]]
    steps = facts.steady_count
    time_of = np.bincount(trace.name[rows], weights=trace.duration[rows], minlength=len(trace.names))
    found = [
        {
            "phase": trace.names[int(name)].removesuffix(" (dynamo_timed)"),
            "time": float(time_of[name]) / steps,
            "share": float(time_of[name]) / steps / max(1.0, per_step),
        }
        for name in np.argsort(-time_of, kind="stable")[:6].tolist()
        if time_of[name] > 0
    ]
    if not found:
        found = [{"phase": trace.name_of(int(compiling[0])), "time": per_step, "share": 1.0}]
    return table(
        "Phases of the compilation; inner ones are part of outer ones",
        [TableColumn("phase", "text", "phase"), headed(TIME, "time per step"), headed(SHARE, "share of compiling")],
        found,
    )
