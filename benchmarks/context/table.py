"""The tables of a result file, for the documentation: `python -m benchmarks.context.table FILE`."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.context.arms import ALL

__all__ = ["rows"]

NAMES = {
    "null": "nothing, as a check",
    "empty": "callbacks that do nothing",
    "watch": "**`watch`**",
    "watch_operators": "`watch --no-frames`",
    "watch_host": "`watch --no-device`",
    "watch_off": "`watch`, switched off",
    "profiler": "torch.profiler",
    "profiler_stack": "torch.profiler, stacks",
    "profiler_all": "torch.profiler, all options",
    "proton_shadow": "Proton, shadow context",
    "proton_python": "Proton, Python frames",
}

_OF_SIZE = ("contexts", "bytes", "stop_ms", "resident_during", "losses")

_PROGRAMS = ("llama", "adds", "wide")


def rows(summary: dict[str, Any]) -> list[list[str]]:
    """One row for each arm: what steps cost while it is on and after it, how long its end takes, what it leaves."""
    table: list[list[str]] = []
    arms = summary.get("arms", {})
    for arm in ALL:
        of_arm = {program: arms.get(f"{program} {arm}", {}) for program in _PROGRAMS}
        cells = [
            _ratio(summary.get(f"pairs {one}", {}), "ratio", "interval") for one in (f"{p} {arm}" for p in _PROGRAMS)
        ]
        # Where steps with and without took turns in one process, that is the better measurement.
        cells = [
            cell or _ratio(of_arm[p], "during", "during_interval") for cell, p in zip(cells, _PROGRAMS, strict=True)
        ]
        cells.append(_ratio(of_arm["llama"], "after", "after_interval"))
        line = summary.get(f"left llama {arm}", {})
        cells.append(_amount(line.get("stop_ms"), 1e3, "ms", "s"))
        cells.append(_amount(line.get("bytes", 0) / 1e3 or None, 1e3, "kB", "MB"))
        if any(cells):
            table.append([NAMES.get(arm, arm), *cells])
    return table


def _ratio(line: dict[str, Any], value: str, interval: str) -> str:
    if value not in line:
        return ""
    low, high = line[interval]
    digits = 3 if high - low < 0.03 else 2
    return f"{line[value]:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _amount(value: float | None, step: float, small: str, large: str) -> str:
    if value is None:
        return ""
    return f"{value:.0f} {small}" if value < step else f"{value / step:.1f} {large}"


def main() -> None:
    """Print them."""
    with open(sys.argv[1], encoding="utf-8") as source:
        found = json.load(source)
    summary = found["summary"]
    print(f"{found['device']}, torch {found['torch']}, CUDA {found['cuda']}, Python {found['python']}\n")
    head = ("attached", "small Llama, a training step", "100,000 additions", "large matrices", "after", "end", "size")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows(summary):
        print(f"| {' | '.join(row)} |")
    print()
    for name, line in summary.items():
        kind = name.split(" ")[0]
        if kind == "turns":
            print(f"{name}: one in {line['one_in']} {_ratio(line, 'ratio', 'interval')}, {line['rounds']} rounds")
        elif kind == "windows":
            for side in ("beside_trace", "beside_watch"):
                print(
                    f"{name} {side}: all {_ratio(line[side]['total'], 'ratio', 'interval')}, each {line[side]['range']}"
                )
        elif kind == "size":
            print(f"{name}: " + ", ".join(f"{key} {line.get(key)}" for key in _OF_SIZE))


if __name__ == "__main__":
    main()
