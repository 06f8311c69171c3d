"""The table of a result file, for the documentation: `python -m benchmarks.context.table FILE`."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.context.arms import ALL

__all__ = ["rows"]

NAMES = {
    "null": "nothing",
    "watch": "**`watch`**",
    "watch_operators": "`watch`, no Python frames",
    "watch_host": "`watch`, no device",
    "watch_detach": "`watch`, then CUPTI taken out",
    "profiler": "torch.profiler",
    "profiler_stack": "torch.profiler, stacks",
    "profiler_all": "torch.profiler, all options",
    "proton_shadow": "Proton, shadow",
    "proton_python": "Proton, Python frames",
}


def rows(summary: dict[str, Any]) -> list[list[str]]:
    """One row for each arm: what steps cost while it is on and after it, how long its end takes, what it leaves."""
    table: list[list[str]] = []
    for arm in ALL:
        cells = [NAMES[arm]]
        for program in ("llama", "adds", "wide"):
            cells.append(_ratio(summary, program, arm))
        line = summary.get(f"aba llama {arm}", {})
        cells.append(f"{line['after']:.2f}" if "after" in line else "")
        cells.append(_amount(line.get("stop_ms"), 1e3, "ms", "s"))
        cells.append(_amount(line.get("bytes", 0) / 1e3 or None, 1e3, "kB", "MB"))
        if any(cells[1:]):
            table.append(cells)
    return table


def _ratio(summary: dict[str, Any], program: str, arm: str) -> str:
    paired, apart = summary.get(f"pairs {program} {arm}"), summary.get(f"aba {program} {arm}")
    if paired and "ratio" in paired:
        low, high = paired["interval"] or (0.0, 0.0)
        return f"{paired['ratio']:.2f} ({low:.2f} to {high:.2f})"
    return f"{apart['during']:.2f}" if apart and "during" in apart else ""


def _amount(value: float | None, step: float, small: str, large: str) -> str:
    if value is None:
        return ""
    return f"{value:.0f} {small}" if value < step else f"{value / step:.1f} {large}"


def main() -> None:
    """Print it."""
    with open(sys.argv[1], encoding="utf-8") as source:
        found = json.load(source)
    print(f"{found['device']}, torch {found['torch']}, CUDA {found['cuda']}, Python {found['python']}\n")
    print("| attached | training step, small Llama | 100,000 additions | large matrices | after | end | size |")
    print("|---|---|---|---|---|---|---|")
    for row in rows(found["summary"]):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
