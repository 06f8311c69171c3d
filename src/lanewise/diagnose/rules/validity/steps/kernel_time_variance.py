"""MEA107."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.evidence import kernel_label, table
from lanewise.diagnose.rule import Clear, Found, NeedsCapture, NotApplicable, Outcome, rule
from lanewise.diagnose.select import counted
from lanewise.measure.facts import Facts
from lanewise.measure.validity.kernel_variance import kernel_variance
from lanewise.report.evidence_columns import KERNEL, MAX, MEDIAN, SHARE
from lanewise.report.model import TableColumn
from lanewise.report.quantity import ratio, share, text, time


@rule(
    "MEA107",
    "kernel-time-variance",
    kind="validity",
    title="The same kernel varies between steps: {kernel} takes {median} typically, {max} at worst; {kernels} like "
    "that. Differences below {noise} are noise.",
)
def kernel_time_variance(
    facts: Facts, *, samples_from: int = 5, max_ratio: float = 1.5, p95_ratio: float = 0.25, share_from: float = 0.01
) -> Outcome:
    """One and the same kernel, on the same sizes, takes clearly different times from step to step.

    Clocks change with power and heat, other processes share the device, and the first launches run cold. A mean then
    depends on which steps were recorded, and two recordings differ without any change to the program.

    Costs: nothing that a fix of the program gives back; it sets the size of a difference that means something.

    Fix: compare medians, fix the clocks (`nvidia-smi -lgc`), and interleave the variants that are compared.

    Verify: the spread falls below the thresholds.

    Silent: below five samples of a kernel at one position of the step; for kernels that overlap communication or a copy
    (DIS105); for kernels with less than 1 % of the kernel time. Position matters: persistent kernels share name and
    grid between shapes (5 and 31 us in one step).

    Source: huggingface/blog torch-profiler (1084 us in the mean of five, 580 us typical).
    """
    if facts.classes.device == "":
        return NotApplicable("no device work")
    steady = int(np.count_nonzero(facts.steps.steady))
    if not facts.trace.steps.recorded or steady < samples_from:
        return NeedsCapture(
            f"{samples_from} or more steady steps: {steady if facts.trace.steps.recorded else 0} recorded"
        )
    data = kernel_variance(facts)
    data = data.take((data["samples"] >= samples_from) & (data["share"] >= share_from))
    if data.height == 0:
        return Clear("no kernel takes the same place in enough steps")
    tail = (data["p95"] - data["median"]) / np.maximum(data["median"], 1)
    varies = (data["max"] > max_ratio * data["median"]) | (tail > p95_ratio)
    if not varies.any():
        return Clear(f"the slowest 5 % of samples lie at most {float(tail.max()):.0%} above the median")
    chosen = data.take(varies).sorted_by("share")
    rows = chosen.rows(8)
    for row in rows:
        row["kernel"] = kernel_label(facts, row["event"])
    worst = rows[0]
    return Found(
        values={
            "kernel": text(worst["kernel"]),
            "median": time(worst["median"]),
            "max": time(worst["max"]),
            "kernels": counted(chosen.height, "kernel varies", "kernels vary"),
            "share": share(float(chosen["share"].sum())),
            "noise": share(float(((chosen["p95"] - chosen["median"]) / np.maximum(chosen["median"], 1)).max())),
            "ratio": ratio(worst["max"] / max(1.0, worst["median"])),
        },
        evidence=[
            table(
                "Kernels that vary, by share of kernel time",
                [
                    KERNEL,
                    TableColumn("samples", "count", "samples"),
                    MEDIAN,
                    TableColumn("p95", "time", "95 %"),
                    MAX,
                    SHARE,
                ],
                rows,
            )
        ],
    )
