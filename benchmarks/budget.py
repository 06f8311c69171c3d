"""What `watch` with a budget costs, and how far its shares are from those of the full tree.

    python -m benchmarks.budget [--device cuda] [--programs llama wide ...] [--seconds S] [--budget 0.01] [--out FILE]

Each program trains in one process: stretches without anything take turns with stretches of one watcher, whose collector is
only switched on as its budget allows. A stretch of full watching at the end gives the shares to compare with.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import PROGRAMS
from benchmarks.fresh import call
from benchmarks.machine import described

import lanewise
from lanewise.capture.timing.distortion import ratio_interval
from lanewise.tree.algebra import merge
from lanewise.tree.flat import flat
from lanewise.tree.model import PHASES, Tree
from lanewise.tree.views import top_down
from lanewise.tree.watching.start_up import with_start_up

ROUNDS = 6


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--programs", nargs="*", default=["small_llama", "llama", "steady", "wide"], choices=list(PROGRAMS)
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each program")
    parser.add_argument("--budget", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/budget-cpu.json"))
    given = parser.parse_args()
    result: dict[str, Any] = {"budget": given.budget, "programs": {}}
    for name in given.programs:
        answer = call(
            partial(measured, name, given.device, given.seconds, given.budget), seconds=4 * given.seconds + 120
        )
        print(name, json.dumps(answer), flush=True)
        result["programs"][name] = answer
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def measured(name: str, device: str, seconds: float, budget: float) -> dict[str, Any]:
    """One program, in a process of its own."""
    torch.set_num_threads(1)
    step = PROGRAMS[name](device)
    _timed(step, device, 5)
    one = max(1e-5, _timed(step, device, 10) / 10)
    each = max(20, round(seconds / ROUNDS / 3 / one))
    times: dict[str, list[float]] = {"plain": [], "budget": []}
    trees: list[Tree] = []
    for turn in range(2 * ROUNDS):
        # plain budget budget plain, so that a drift hits both alike
        arm = ("plain", "budget", "budget", "plain")[turn % 4]
        if arm == "plain":
            times[arm].append(_timed(step, device, each) / each)
            continue
        watcher = lanewise.watch(way="native", budget=budget, alerts=False)
        with watcher:
            # What a watcher learns at first is paid once in a run of any length.
            _timed(step, device, min(each, 600))
            times[arm].append(_timed(step, device, each) / each)
        trees.append(watcher.tree)
    with lanewise.watch(way="native", measure=False, alerts=False) as full:
        _timed(step, device, max(100, each))
    sampled = merge(trees)
    interval = ratio_interval([1e9 * t for t in times["budget"]], [1e9 * t for t in times["plain"]])
    watched = sampled.info.watched
    assert watched is not None
    shares, theirs = _shares(sampled), _shares(full.tree)
    apart = {key: abs(shares.get(key, 0.0) - theirs.get(key, 0.0)) for key in shares.keys() | theirs.keys()}
    worst = max(apart, key=apart.__getitem__)
    return {
        "step_ms": round(1e3 * one, 3),
        "steps": 2 * ROUNDS * each,
        "ratio": round(float(np.median(times["budget"]) / np.median(times["plain"])), 4),
        "interval": [round(end, 4) for end in interval] if interval else None,
        "watched": [watched.steps_watched, watched.steps_seen],
        "every": [tree.info.watched.every for tree in trees if tree.info.watched is not None],
        "furthest_share_points": round(100 * apart[worst], 2),
        "furthest": list(worst),
        "said_sampling_error_points": round(100 * watched.sampling_error, 2) if watched.sampling_error >= 0 else None,
    }


def _shares(tree: Tree) -> dict[tuple[str, str], float]:
    """Of host time, by module, operator and phase."""
    tree = with_start_up(tree, "out")
    total = max(1.0, float(tree.value("host").sum()))
    found: dict[tuple[str, str], float] = {}
    shown = top_down(tree)
    for by in ("module", "operator"):
        for row in flat(shown, by, metric="host").rows():
            found[by, row["name"]] = found.get((by, row["name"]), 0.0) + row["total_host"] / total
    for at, ns in enumerate(np.bincount(tree.phase, weights=tree.value("host"), minlength=len(PHASES)).tolist()):
        found["phase", PHASES[at]] = ns / total
    return found


def _timed(step: Callable[[], None], device: str, steps: int) -> float:
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
