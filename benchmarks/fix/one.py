"""Optimizes one workload and writes the result as JSON, in a process of its own: nothing is timed after a profiler."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec
from benchmarks.fix.workloads import WORKLOADS

from lanewise.fix.optimize import optimize

__all__ = ["optimize_one"]


def optimize_one(name: str, device: str, budget: str, output: Path, *, trace: bool = True) -> None:
    """Optimize a workload on a device; its report goes to a file, its progress to standard error."""
    import sys

    import torch

    torch.manual_seed(0)
    workload = next(one for one in WORKLOADS if one.name == name)
    target, inputs = workload.make(device)
    plan = optimize(
        target,
        inputs,
        goal="throughput",
        budget=budget,
        trace=trace,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    output.write_text(json.dumps(msgspec.to_builtins(plan.report)))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--device", required=True)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("/dev/stdout"))
    asked = parser.parse_args()
    optimize_one(asked.name, asked.device, asked.budget, asked.output, trace=not asked.no_trace)


if __name__ == "__main__":
    main()
