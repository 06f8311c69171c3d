"""Whether the sampling error that `watch --budget` states covers the truth: `python -m benchmarks.shares [--steps N] ...`.

Every step of a real program is watched, and what each place took in it is kept. Then a budget chooses windows of these same
steps, as it would have in that run, once for each of many seeds. So the truth is known, the shares of all steps, and a
difference is the sample's alone: nothing of it is that another run was another one. A try is covered if no place that takes
1 % of the step or more is further from the truth than was stated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import PROGRAMS
from benchmarks.machine import described

import lanewise
from lanewise.capture.context.sites import frame_name
from lanewise.capture.context.turns import AllSteps
from lanewise.capture.timing.watch_budget import Budget
from lanewise.tree.slowing.lookout import Lookout
from lanewise.tree.slowing.looks.growing_forest import GrowingForest, padded
from lanewise.tree.slowing.looks.sampling import Sampling

_WARM_STEPS = 50
_WORTH = 0.01
_WATCHED, _SWITCHING_NS = 1.2, 3e5
"""What a watched step takes of another one, and what the ends of a window take: as measured on launch-bound steps."""


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.01)
    parser.add_argument("--programs", nargs="*", default=["small_llama", "mlp"], choices=list(PROGRAMS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/shares-cpu.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"machine": described(), "budget": given.budget, "programs": {}}
    for name in given.programs:
        kept = _kept(name, given.steps)
        result["programs"][name] = found = _tries(*kept, given.budget, given.tries)
        print(name, json.dumps(found), flush=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")


class _Kept:
    """Stands where the sums of a sample would be: what each context took by itself, step by step."""

    def __init__(self) -> None:
        self.steps: list[np.ndarray] = []

    def add(self, own: np.ndarray) -> None:
        """One step, as there is one look after each."""
        self.steps.append(own)


def _kept(name: str, steps: int) -> tuple[GrowingForest, list[np.ndarray], float]:
    """What is known of contexts, what they took in each step, and the time of a step, ns."""
    step = PROGRAMS[name]("cpu")
    kept = _Kept()
    with lanewise.watch(way="native", measure=False, alerts=False) as watcher:
        collector: Any = watcher._collector
        looks: Any = Lookout(collector.followed, frame_name, lambda _: None, follow=False)
        looks._sampling = kept
        for _ in range(_WARM_STEPS):
            step()
        begin = time.perf_counter_ns()
        for at in range(steps + 1):
            step()
            looks.look(at, at)
        each = (time.perf_counter_ns() - begin) / steps
    return looks._forest, kept.steps, each


def _tries(forest: GrowingForest, steps: list[np.ndarray], each: float, budget: float, tries: int) -> dict[str, Any]:
    inside = np.array([_inclusive(forest, own) for own in steps])
    whole = np.array([own.sum() for own in steps])
    truth = inside.sum(axis=0) / whole.sum()
    worth = truth >= _WORTH
    furthest: list[float] = []
    stated: list[float] = []
    spread: list[float] = []
    windows: list[int] = []
    for seed in range(tries):
        sampling, rows = Sampling(forest), _windows(budget, len(steps), each, seed)
        for chosen in rows:
            sampling.add(np.sum([padded(steps[row], len(forest)) for row in chosen], axis=0))
        all_rows = [row for chosen in rows for row in chosen]
        share = inside[all_rows].sum(axis=0) / whole[all_rows].sum()
        furthest.append(float(np.abs(share - truth)[worth].max()))
        beside = AllSteps()
        beside.passed(0, 0)
        beside.passed(len(steps), int(whole.sum()))
        for row in all_rows:
            beside.watched(int(whole[row]))
        stated.append(sampling.error() + beside.unseen(1.0))
        spread.append(sampling.error())
        windows.append(len(rows))
    return {
        "steps": len(steps),
        "step_ms": round(each / 1e6, 3),
        "places": int(worth.sum()),
        "windows": median(windows),
        "tries": tries,
        "covered": sum(far <= most for far, most in zip(furthest, stated, strict=True)),
        "covered_by_spread_alone": sum(far <= most for far, most in zip(furthest, spread, strict=True)),
        "within_2_points": sum(far <= 0.02 for far in furthest),
        "furthest_points": {"median": round(100 * median(furthest), 2), "most": round(100 * max(furthest), 2)},
        "stated_points": {"median": round(100 * median(stated), 2), "least": round(100 * min(stated), 2)},
    }


def _windows(budget: float, steps: int, each: float, seed: int) -> list[range]:
    """Steps that a budget would have watched, window by window; those that the end cuts off are left out."""
    plan = Budget(budget, seed=seed)
    on, off = [round(_WATCHED * each)] * 40, [round(each)] * 40
    found: list[range] = []
    for step in range(steps):
        if plan.watched(step) and not (step and plan.watched(step - 1)):
            found.append(range(step, step + plan.steps))
        plan.ended(step + 1, on, off, _SWITCHING_NS)
    return [one for one in found if one.stop <= steps]


def _inclusive(forest: GrowingForest, own: np.ndarray) -> np.ndarray:
    return forest.inclusive(padded(own, len(forest)))


if __name__ == "__main__":
    main()
