"""What `watch` with a budget costs, and how far its shares are from those of the full tree.

    python -m benchmarks.budget [--device cuda] [--programs llama wide ...] [--seconds S] [--budget 0.01] [--out FILE]

Each program trains in one process beside one watcher, whose steps the loop itself marks. Stretches of a tenth of a second
take turns: in one of two the watcher is told of each step and does what its budget allows, in the other it is left out, its
collector off. So a drift of the machine hits both alike, and three times of a step are known, each from thousands of steps:
without the watcher, between its windows, and in them. What the watcher adds is

    share of steps in windows x (in a window - between) + (between - without) + what the watcher does at their ends

each from medians (others interrupt a busy machine's steps), divided by the time of a step without. The interval is that of
2,000 samples of pairs of stretches. What torch's hooks take to notice a step (2 us, measured by `watch` itself) comes on
top where the program does not mark its steps. A stretch of full watching at the end gives the shares to compare with.
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
from lanewise.tree.flat import flat
from lanewise.tree.model import PHASES, Tree
from lanewise.tree.views import top_down
from lanewise.tree.watching.start_up import with_start_up

STRETCH_SECONDS = 0.1
LEARNING_WINDOWS = 6
"""The first windows come often, which is paid once in a run of any length."""
RESAMPLES = 2000
_STEPS = 8
"""Of a window."""


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
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    _run(step, 5, wait)
    one = max(1e-5, _run(step, 10, wait) / 10)
    each = max(4, round(STRETCH_SECONDS / one))
    stretches = _Stretches(step, wait)
    watcher = lanewise.watch(way="native", budget=budget, alerts=False)
    with watcher:
        pace = watcher._pace
        while pace.steps_on < _STEPS * LEARNING_WINDOWS:
            _run(lambda: (step(), watcher.step()), 50, wait)
        until = time.perf_counter() + 0.8 * seconds
        while time.perf_counter() < until or len(stretches.pairs) < 10:
            stretches.pair(watcher, each)
        tree = watcher.tree
    with lanewise.watch(way="native", measure=False, alerts=False) as full:
        _run(step, max(100, round(0.2 * seconds / one)), wait)
    watched = tree.info.watched
    assert watched is not None
    shares, theirs = _shares(tree), _shares(full.tree)
    apart = {key: abs(shares.get(key, 0.0) - theirs.get(key, 0.0)) for key in shares.keys() | theirs.keys()}
    worst = max(apart, key=apart.__getitem__)
    return stretches.answer() | {
        "step_ms": round(1e3 * one, 3),
        "watched": [watched.steps_watched, watched.steps_seen],
        "every": watched.every,
        "furthest_share_points": round(100 * apart[worst], 2),
        "furthest": list(worst),
        "said_sampling_error_points": round(100 * watched.sampling_error, 2) if watched.sampling_error >= 0 else None,
    }


class _Stretches:
    """Times of steps, ns, by pairs of stretches: without the watcher, between its windows, in them; and its other work."""

    def __init__(self, step: Callable[[], None], wait: Callable[[], None]) -> None:
        self.pairs: list[tuple[list[int], list[int], list[int], list[int]]] = []
        self.windows: list[int] = []
        self._window = 0
        self._step, self._wait = step, wait
        self._turn = 0

    def pair(self, watcher: Any, steps: int) -> None:
        """One stretch of each kind; which comes first changes."""
        self._turn += 1
        without: list[int] = []
        if self._turn % 2:
            without = self._without(watcher, steps)
        between, within, other = self._with(watcher, steps)
        if not self._turn % 2:
            without = self._without(watcher, steps)
        self.pairs.append((without, between, within, other))

    def _without(self, watcher: Any, steps: int) -> list[int]:
        pace = watcher._pace
        on = pace._on
        if on:
            watcher._collector.off()
        times = [self._timed() for _ in range(steps + 1)]
        if on:
            watcher._collector.on()
        # The next step that it is told of begins now.
        pace.restart()
        return times[1:]

    def _with(self, watcher: Any, steps: int) -> tuple[list[int], list[int], list[int]]:
        pace = watcher._pace
        other: list[int] = []
        between: list[int] = []
        within: list[int] = []
        for at in range(steps + 1):
            on = pace._on
            took = self._timed()
            begin = time.perf_counter_ns()
            watcher.step()
            told = time.perf_counter_ns() - begin
            if at:
                (within if on else between).append(took)
            if on or pace._on:
                # A window: on, in between, off and a look at what there is.
                self._window += told
                if not pace._on:
                    self.windows.append(self._window)
                    self._window = 0
            else:
                other.append(told)
        return between, within, other

    def _timed(self) -> int:
        begin = time.perf_counter_ns()
        self._step()
        self._wait()
        return time.perf_counter_ns() - begin

    def answer(self) -> dict[str, Any]:
        """What the watcher adds, and its 95 % interval."""
        random = np.random.default_rng(0)
        count = len(self.pairs)
        samples = [self._added(random.integers(0, count, count)) for _ in range(RESAMPLES)]
        parts = self._added(np.arange(count))
        low, high = np.percentile([sum(one) for one in samples], (2.5, 97.5))
        return {
            "ratio": round(1 + sum(parts), 5),
            "interval": [round(1 + float(low), 5), round(1 + float(high), 5)],
            "of_which": dict(zip(("windows", "between", "told"), (round(part, 5) for part in parts), strict=True)),
            "stretches": count,
            "steps": [sum(len(pair[kind]) for pair in self.pairs) for kind in range(3)],
            "windows": len(self.windows),
            "told_ms_per_window": round(float(np.median(self.windows)) / 1e6, 3) if self.windows else None,
        }

    def _added(self, rows: np.ndarray) -> tuple[float, float, float]:
        chosen = [self.pairs[int(row)] for row in rows]
        without, between, within = (
            np.array([ns for pair in chosen for ns in pair[kind]], dtype=np.float64) for kind in range(3)
        )
        # The machine changes its speed: a step between windows is compared with those beside it.
        ratios = [float(np.median(pair[1]) / np.median(pair[0])) for pair in chosen if pair[1] and pair[0]]
        usual, off = float(np.median(without)), float(np.median(between))
        steps = max(1, len(between) + len(within))
        more = max(0.0, float(np.median(within)) - off) if len(within) else 0.0
        told = float(np.median([ns for pair in chosen for ns in pair[3]]))
        windows = len(within) / steps * float(np.median(self.windows)) / _STEPS if self.windows else 0.0
        return len(within) / steps * more / usual, float(np.median(ratios)) - 1, (told + windows) / usual


def _nothing() -> None:
    """A processor needs no waiting for."""


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


def _run(step: Callable[[], Any], steps: int, wait: Callable[[], None]) -> float:
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
