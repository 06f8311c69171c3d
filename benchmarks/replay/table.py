"""What was measured, as a table: `python -m benchmarks.replay.table TRUTH.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["table"]


def table(truth: dict[str, Any]) -> str:
    """Markdown: one row a pair, times in microseconds a step."""
    machine = truth["machine"]
    lines = [
        "# Pairs: slow, and with one fix",
        "",
        f"{machine.get('card', 'CPU')}, torch {machine['torch']}, CUDA {machine['cuda']}, triton {machine['triton']}, "
        f"driver {machine.get('driver')}. Microseconds a step: without a profiler the median of {_rounds(truth)} rounds "
        "in turns; gain from the ratio of the two in each round, with the 20th to 80th percentile over rounds; as recorded "
        "from the beginning of the first step to the end of the device's work, over the steps.",
        "",
        "| pair | fix | rules | slow | fixed | gain | gain, p20 to p80 | recorded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pair in truth["pairs"]:
        slow, ratio = pair["slow_us"], pair["fixed_over_slow"]
        gains = [slow * (1 - ratio[key]) for key in ("median", "p80", "p20")]
        recorded = next(row for row in pair["recordings"] if row["role"] == "slow")["recorded"]["to_end_us"]
        lines.append(
            f"| {pair['name']} | {pair['fix']} | {', '.join(pair['codes'])} | {slow:.0f} | {pair['fixed_us']:.0f} "
            f"| {gains[0]:.0f} | {gains[1]:.0f} to {gains[2]:.0f} | {recorded:.0f} |"
        )
    expected = [pair for pair in truth["pairs"] if pair["nothing"]]
    lines += ["", "Expected to give nothing:", ""]
    lines += [f"- {pair['name']}: {pair['nothing']}" for pair in expected]
    return "\n".join(lines) + "\n"


def _rounds(truth: dict[str, Any]) -> int:
    return max(row["unprofiled"]["rounds"] for pair in truth["pairs"] for row in pair["recordings"])


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())), end="")
