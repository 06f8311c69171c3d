"""Optimizes one workload in a process of its own and prints the result as JSON: nothing is timed after a profiler."""

from __future__ import annotations

import argparse
import json

import msgspec
from benchmarks.fix.workloads import WORKLOADS

from lanewise.fix.optimize import optimize


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--device", required=True)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--no-trace", action="store_true")
    asked = parser.parse_args()
    import torch

    torch.manual_seed(0)
    workload = next(one for one in WORKLOADS if one.name == asked.name)
    target, inputs = workload.make(asked.device)
    plan = optimize(target, inputs, budget=asked.budget, trace=not asked.no_trace)
    print(json.dumps(msgspec.to_builtins(plan.report)))


if __name__ == "__main__":
    main()
