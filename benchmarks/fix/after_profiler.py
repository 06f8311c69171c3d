"""What a profiler leaves behind: step time after one was attached over that before, in fresh processes.

    python -m benchmarks.fix.after_profiler [--processes 10]

Un-profiled steps are timed, then a profiler is attached and detached (or, for `null`, nothing happens), then steps are
timed again. Times are the CPU time of the thread that issues the work, which other programs change little. Every
repetition is a process of its own, configurations in random order. A ratio counts divided by that of `null`. The step is
a chain of small operators: mostly host work, where the effect is largest. Writes
`benchmarks/results/after-profiler-<device>-<date>.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"
CONFIGURATIONS = ("null", "operators", "memory", "stacks")
_STEPS, _BLOCKS = 20, 30


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--one", choices=CONFIGURATIONS, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(_one(asked.one)))
        return
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in CONFIGURATIONS}
    for name in random.Random(0).sample([*CONFIGURATIONS] * asked.processes, len(CONFIGURATIONS) * asked.processes):
        command = [sys.executable, "-m", "benchmarks.fix.after_profiler", "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[2])
        samples[name].append(json.loads(done.stdout.splitlines()[-1]))
    result = _summary(samples)
    today = datetime.datetime.now(datetime.UTC)
    output = RESULTS / f"after-profiler-{result['device']}-{today:%Y-%m-%d}.json"
    output.write_text(json.dumps(result, indent=1) + "\n")
    for name in CONFIGURATIONS:
        low, high = result["intervals"][name]
        print(f"{name:10} {result['ratios'][name]:.3f} ({low:.3f} to {high:.3f})")


def _one(name: str) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, w = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)

    def step() -> None:
        y = x
        for _ in range(25):
            y = torch.relu(y * w + x)
        if device == "cuda":
            torch.cuda.synchronize()

    before = _median_us(step)
    if name != "null":
        options = {"operators": {}, "memory": {"profile_memory": True}, "stacks": {"with_stack": True}}[name]
        with torch.profiler.profile(**options):
            for _ in range(_STEPS):
                step()
    return {"before_us": before, "after_us": _median_us(step)}


def _median_us(step: Callable[[], None]) -> float:
    for _ in range(_STEPS):
        step()
    blocks: list[float] = []
    for _ in range(_BLOCKS):
        began = time.thread_time_ns()
        for _ in range(_STEPS):
            step()
        blocks.append((time.thread_time_ns() - began) / _STEPS / 1e3)
    return round(float(np.median(blocks)), 3)


def _summary(samples: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    import torch

    ratios = {name: np.array([one["after_us"] / one["before_us"] for one in found]) for name, found in samples.items()}
    draw = np.random.default_rng(0)
    null = ratios["null"]
    intervals: dict[str, list[float]] = {}
    for name, values in ratios.items():
        picks = [
            np.median(draw.choice(values, len(values))) / np.median(draw.choice(null, len(null))) for _ in range(4000)
        ]
        intervals[name] = [round(float(q), 4) for q in np.quantile(picks, (0.025, 0.975))]
    return {
        "schema": 1,
        "id": "after-profiler",
        "command": "python -m benchmarks.fix.after_profiler",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "load_after": os.getloadavg()[0],
        "processes": len(null),
        "ratios": {name: round(float(np.median(values) / np.median(null)), 4) for name, values in ratios.items()},
        "intervals": intervals,
        "samples": samples,
    }


if __name__ == "__main__":
    main()
