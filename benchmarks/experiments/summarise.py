"""Explains every recorded trace of the experiments and writes one table as Markdown.

    python benchmarks/experiments/summarise.py TRACES > table.md

TRACES is a folder with the unpacked `traces-*.tar` of `run.py`. Step times are those without the profiler, device time
and counts are medians over the steady recorded steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lanewise.diagnose.explain import explain
from lanewise.measure.facts import Facts
from lanewise.trace.reader import read

HEAD = "| program | bound by | step, us | device, us | kernels | copies, sets | launches | recorded / real | findings |"


def row(path: Path) -> str:
    """One line of the table."""
    trace = read(path, cache=False)
    report = explain(trace)
    facts = Facts(trace, unprofiled_ns=round(report.regime.step_us * 1e3))
    steps, steady = facts.steps.table, facts.steps.steady

    def median(column: str) -> float:
        return float(np.median(steps[column][steady]))

    codes = [f.code for f in report.findings if f.kind == "problem" and f.on_bottleneck and not f.claims_from]
    ratio = f"{report.regime.recorded_step_us / report.regime.step_us:.1f}x" if report.regime.unprofiled else "-"
    cells = [
        path.name.removesuffix(".json.gz"),
        report.regime.name,
        f"{report.regime.step_us:,.1f}" if report.regime.unprofiled else f"({report.regime.step_us:,.1f})",
        f"{median('device_time') / 1e3:,.1f}",
        f"{median('kernels'):.0f}",
        f"{median('copies'):.0f}",
        f"{median('launches'):.0f}",
        ratio,
        ", ".join(codes[:4]) or "-",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    folder = Path(sys.argv[1])
    paths = sorted(folder.glob("*.json.gz"))
    if not paths:
        print(f"{folder} holds no traces", file=sys.stderr)
        return 2
    print(HEAD)
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for path in paths:
        print(row(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
