"""How soon `watch` names a place that became slower, and how often it does so for nothing.

    python -m benchmarks.slowdowns [--runs N] [--planted N] [--noises NAME ...] [--out FILE]

Simulated programs of 50 places, each with its own kind of noise: `--runs` times 100,000 healthy steps, and `--planted`
times 10 % more of a place that holds 5 % of the step. `benchmarks.slower_live` does the same to running programs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import described
from tests.tree.slowing.simulated import NOISES, Program, followed

from lanewise.tree.slowing import lookout

STEPS, BEGIN, PLACE = 100_000, 900, 7


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--noises", nargs="*", default=list(NOISES), choices=list(NOISES))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/slowdowns-cpu.json"))
    given = parser.parse_args()
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    result["machine"] = described()
    if given.runs or given.planted:
        found = {name: simulated(name, given.runs, given.planted) for name in given.noises}
        result["simulated"] = result.get("simulated", {}) | found
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def simulated(noise: str, runs: int, planted: int) -> dict[str, Any]:
    """Alerts in healthy steps, and the delay of right ones."""
    # A simulated step takes no time, so that looking would seem to take all of it; and who else has the processor while
    # it is simulated has nothing to do with it.
    lookout._COST = lookout.CROWDED = 1e9  # type: ignore[attr-defined]
    random = np.random.default_rng(2026)
    begin = time.monotonic()
    false = sum(len(followed(Program(), _times(random, noise, STEPS))) for _ in range(runs))
    delays: list[int] = []
    missed = elsewhere = 0
    for _ in range(planted):
        times = _times(random, noise, BEGIN + 400)
        times[BEGIN:, PLACE] *= 1.1
        found = followed(Program(), times)
        right = [one for one in found if one.path[-2:] == ("layers.1", "aten::op2")]
        elsewhere += len(found) - len(right)
        delays += [one.at - BEGIN for one in right[:1]]
        missed += not right
    answer = {
        "healthy_steps": runs * STEPS,
        "false_alerts": false,
        "planted": planted,
        "within_100_steps": sum(delay <= 100 for delay in delays),
        "median_delay": float(np.median(delays)) if delays else None,
        "longest_delay": max(delays, default=None),
        "not_within_400_steps": missed,
        "named_elsewhere": elsewhere,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(noise, json.dumps(answer), flush=True)
    return answer


def _times(random: np.random.Generator, noise: str, steps: int) -> np.ndarray:
    share = random.dirichlet(np.full(50, 2.0)) * 1e7
    share[PLACE] = 5e5
    return np.maximum(NOISES[noise](random, steps, 50), 0.1) * share


if __name__ == "__main__":
    main()
