"""The cost of the collector: `python -m benchmarks.context [--rounds N] [--out FILE]`.

Every measurement is a fresh process; the arms of a round run in random order. The result file keeps the medians of
each process, so that every figure can be computed again. Running it again adds rounds to the file.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from lanewise.record.distortion import ratio_interval

ARMS = ("null", "watch", "watch_operators", "profiler", "profiler_stack", "profiler_all")
PAIRED = ("null", "watch", "watch_operators")
STEPS = {"adds": 5, "llama": 12}


def measure(*words: str) -> dict[str, Any]:
    """The answer of one process."""
    command = [sys.executable, "-m", "benchmarks.context.measure", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def medians(answer: dict[str, Any]) -> dict[str, Any]:
    """Step times as medians, the rest as it is."""
    return {k: int(statistics.median(v)) if k.endswith("_ns") and isinstance(v, list) else v for k, v in answer.items()}


def one_round(results: dict[str, Any], only: str) -> None:
    """One process for each program and arm, and one of each other kind."""
    for program, steps in STEPS.items():
        if only and only != program:
            continue
        for arm in random.sample(ARMS, len(ARMS)):
            results["aba"].setdefault(program, {}).setdefault(arm, []).append(
                medians(measure("aba", program, arm, str(steps)))
            )
    if only in ("", "pairs"):
        for program, count in {"adds": 16, "llama": 40}.items():
            for arm in random.sample(PAIRED, len(PAIRED)):
                results["pairs"].setdefault(f"{program} {arm}", []).append(measure("pairs", program, arm, str(count)))
    if only in ("", "turns"):
        for arm in ("null", "watch"):
            results["turns"].setdefault(arm, []).append(measure("turns", "small_llama", arm, "12"))


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Ratios with their intervals, medians of the rest."""
    out: dict[str, Any] = {}
    for program, arms in results["aba"].items():
        for arm, rows in arms.items():
            line: dict[str, Any] = {"processes": len(rows)}
            for name in ("during", "after"):
                ratios = [row[f"{name}_ns"] / row["before_ns"] for row in rows]
                line[name] = round(statistics.median(ratios), 4)
                line[f"{name}_range"] = [round(min(ratios), 4), round(max(ratios), 4)]
            line["before_ms"] = round(statistics.median(row["before_ns"] for row in rows) / 1e6, 3)
            for name in ("start_ms", "stop_ms", "bytes", "contexts", "callbacks", "resident_during", "resident_after"):
                if name in rows[0]:
                    line[name] = round(statistics.median(row[name] for row in rows), 3)
            out[f"{program} {arm}"] = line
    blocks = {f"pairs {name}": rows for name, rows in results["pairs"].items()}
    blocks |= {f"turns {name}": rows for name, rows in results["turns"].items()}
    for name, rows in blocks.items():
        within = [ns for row in rows for ns in row["within_ns"]]
        without = [ns for row in rows for ns in row["without_ns"]]
        pairs = [a / b for a, b in zip(within, without, strict=True)]
        out[name] = {
            "ratio": round(statistics.median(within) / statistics.median(without), 4),
            "interval": [round(x, 4) for x in ratio_interval(within, without) or ()],
            "median_of_pairs": round(statistics.median(pairs), 4),
            "blocks": len(within),
            "without_ms": round(statistics.median(without) / 1e6, 3),
            "processes": len(rows),
        }
    return out


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", choices=["", "adds", "llama", "pairs", "turns", "size"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/context-cpu.json"))
    given = parser.parse_args()
    results: dict[str, Any] = {"aba": {}, "pairs": {}, "turns": {}, "size": []}
    if given.out.exists():
        results = json.loads(given.out.read_text())["rounds"]
    for _ in range(given.rounds):
        one_round(results, given.only)
        # A run that is cut short keeps its rounds.
        write(given.out, results)
    if given.only in ("", "size"):
        results["size"] = [medians(measure("size", "small_llama", "watch", n)) for n in ("200", "20000")]
    write(given.out, results)
    print(json.dumps(summary(results) | {"size": results["size"]}, indent=1))


def write(out: Path, results: dict[str, Any]) -> None:
    """The file: versions, summary, and all rounds."""
    import torch

    found = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "summary": summary(results),
        "rounds": results,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
