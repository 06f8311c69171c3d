"""What `watch` with a budget costs, and how far its shares are from those of the full tree.

    python -m benchmarks.budget [--device cuda] [--programs llama wide ...] [--seconds S] [--budget 0.01] [--out FILE]

Each program trains in one process beside one watcher, whose steps the loop itself marks. Stretches of a tenth of a second
take turns: in one of two the watcher is told of each step and does what its budget allows, in the other it is left out, its
collector off. So a drift of the machine hits both alike. Windows are rare, so they are taken from the whole run: the mean
of the steps in one, over the median of the 50 steps before it. What the watcher adds is

    share of steps in windows, as planned at the end x (in a window - before it + what the watcher does at its ends)
    + (between windows - without) + what the watcher does when it is told of a step

each from medians (others interrupt a busy machine's steps), divided by the time of a step without. The interval is that of
2,000 samples of pairs of stretches and of windows. What torch's hooks take to notice a step (2 us, measured by `watch`
itself) comes on top where the program does not mark its steps. A stretch of full watching at the end gives the shares to
compare with. A program takes the seconds that are asked for; SIGTERM ends it with what there is.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.context.programs import PROGRAMS
from benchmarks.fresh import Fork, call
from benchmarks.machine import described

import lanewise
from lanewise.capture.context import native_build
from lanewise.tree.flat import flat
from lanewise.tree.model import PHASES, Tree
from lanewise.tree.views import top_down
from lanewise.tree.watching.start_up import with_start_up

STRETCH_SECONDS = 0.1
LEARNING_WINDOWS = 6
"""The first windows come often, which is paid once in a run of any length."""
_MOST_OVERTIME = 100
"""Seconds beyond those asked for, after which a program is stopped."""
RESAMPLES = 2000
_STEPS = 8
"""Of a window."""


def main() -> None:
    """Measure, and write the file after each program."""
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
    # To compile the collector takes a while, which belongs to no program.
    call(_built, seconds=300)
    asked_to_end: list[Fork] = []
    signal.signal(signal.SIGTERM, lambda *_: [fork.ask_to_end() for fork in asked_to_end])
    for name in given.programs:
        fork = Fork(partial(measured, name, given.device, given.seconds, given.budget))
        asked_to_end[:] = [fork]
        answer = fork.answer(time.monotonic() + given.seconds + _MOST_OVERTIME)
        if answer is None:
            fork.stop()
            answer = {"error": f"no result within {given.seconds + _MOST_OVERTIME:.0f} s"}
        print(name, json.dumps(answer), flush=True)
        result["programs"][name] = answer
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        if answer.get("cut"):
            return
    result["machine"] = described()
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def _built() -> dict[str, Any]:
    native_build.load()
    return {}


class _Clock:
    """How much of the time asked for has gone; SIGTERM ends it."""

    def __init__(self, seconds: float) -> None:
        self.begin, self.seconds, self.cut = time.perf_counter(), seconds, False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.cut = True

    def before(self, part: float) -> bool:
        """Whether less than this part has gone."""
        return not self.cut and time.perf_counter() - self.begin < part * self.seconds


def measured(name: str, device: str, seconds: float, budget: float) -> dict[str, Any]:
    """One program, in a process of its own."""
    clock = _Clock(seconds)
    torch.set_num_threads(1)
    step = PROGRAMS[name](device)
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    _run(step, 5, wait)
    one = max(1e-5, _run(step, 10, wait) / 10)
    each = max(4, round(STRETCH_SECONDS / one))
    stretches = _Stretches(step, wait)
    watcher = lanewise.watch(way="native", budget=budget, alerts=False)
    with watcher:
        while len(stretches.windows) < LEARNING_WINDOWS and clock.before(0.4):
            stretches.learn(watcher, each)
        while clock.before(0.8):
            stretches.pair(watcher, each)
        tree = watcher.tree
    with lanewise.watch(way="native", measure=False, alerts=False) as full:
        while clock.before(1.0):
            _run(step, 1, wait)
            full.step()
    watched = tree.info.watched
    assert watched is not None
    answer: dict[str, Any] = {
        "step_ms": round(1e3 * one, 3),
        "watched": [watched.steps_watched, watched.steps_seen],
        "every": watched.every,
    }
    if stretches.pairs and stretches.windows:
        answer |= stretches.answer(_STEPS / watched.every)
    if clock.cut:
        return answer | {"cut": "it was interrupted, and this is what there was"}
    shares, theirs = _shares(tree), _shares(full.tree)
    apart = {key: abs(shares.get(key, 0.0) - theirs.get(key, 0.0)) for key in shares.keys() | theirs.keys()}
    worst = max(apart, key=apart.__getitem__)
    return answer | {"furthest_share_points": round(100 * apart[worst], 2), "furthest": list(worst)}


class _Stretches:
    """Times of steps, ns, by pairs of stretches: without the watcher, between its windows, and told of a step there; and of
    its windows, which are rare, from the whole run: times of the steps in them, of those right before them, and of the
    watcher's work at their ends."""

    def __init__(self, step: Callable[[], None], wait: Callable[[], None]) -> None:
        self.pairs: list[tuple[list[int], list[int], list[int]]] = []
        self.windows: list[int] = []
        self._within: list[float] = []
        self._before: deque[int] = deque(maxlen=50)
        self._steps: list[int] = []
        self._told = 0
        self._step, self._wait = step, wait
        self._turn = 0

    def learn(self, watcher: Any, steps: int) -> None:
        """The first windows, which come often."""
        self._with(watcher, steps)

    def pair(self, watcher: Any, steps: int) -> None:
        """One stretch of each kind; which comes first changes."""
        self._turn += 1
        without: list[int] = []
        if self._turn % 2:
            without = self._without(watcher, steps)
        between, told = self._with(watcher, steps)
        if not self._turn % 2:
            without = self._without(watcher, steps)
        self.pairs.append((without, between, told))

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

    def _with(self, watcher: Any, steps: int) -> tuple[list[int], list[int]]:
        pace = watcher._pace
        told: list[int] = []
        between: list[int] = []
        for at in range(steps + 1):
            on = pace._on
            took = self._timed()
            begin = time.perf_counter_ns()
            watcher.step()
            spent = time.perf_counter_ns() - begin
            if on:
                self._steps.append(took)
            elif at:
                between.append(took)
                self._before.append(took)
            if on or pace._on:
                # A window: on, in between, off and a look at what there is.
                self._told += spent
                if not pace._on:
                    self.windows.append(self._told)
                    if self._before:
                        self._within.append(float(np.mean(self._steps)) / float(np.median(self._before)))
                    self._told, self._steps = 0, []
            else:
                told.append(spent)
        return between, told

    def _timed(self) -> int:
        begin = time.perf_counter_ns()
        self._step()
        self._wait()
        return time.perf_counter_ns() - begin

    def answer(self, watched: float) -> dict[str, Any]:
        """What the watcher adds where it watches so much of the steps, and the 95 % interval."""
        random = np.random.default_rng(0)
        pairs, windows = len(self.pairs), len(self.windows)
        samples = [
            self._added(watched, random.integers(0, pairs, pairs), random.integers(0, windows, windows))
            for _ in range(RESAMPLES)
        ]
        parts = self._added(watched, np.arange(pairs), np.arange(windows))
        low, high = np.percentile([sum(one) for one in samples], (2.5, 97.5))
        return {
            "ratio": round(1 + sum(parts), 5),
            "interval": [round(1 + float(low), 5), round(1 + float(high), 5)],
            "of_which": dict(
                zip(
                    ("steps_in_windows", "ends_of_windows", "between", "told"),
                    (round(part, 5) for part in parts),
                    strict=True,
                )
            ),
            "stretches": pairs,
            "steps": [sum(len(pair[kind]) for pair in self.pairs) for kind in range(2)],
            "windows": windows,
            "ends_of_a_window_ms": round(float(np.median(self.windows)) / 1e6, 3),
            "step_in_a_window": round(float(np.median(self._within)), 3),
        }

    def _added(self, watched: float, pairs: np.ndarray, windows: np.ndarray) -> tuple[float, float, float, float]:
        chosen = [self.pairs[int(row)] for row in pairs]
        usual = float(np.median([ns for pair in chosen for ns in pair[0]]))
        # The machine changes its speed: a step between windows is compared with those beside it.
        ratios = [float(np.median(pair[1]) / np.median(pair[0])) for pair in chosen if pair[1]]
        told = [ns for pair in chosen for ns in pair[2]]
        within = np.array(self._within)[windows % len(self._within)]
        ends = np.array(self.windows)[windows]
        return (
            watched * max(0.0, float(np.median(within)) - 1),
            watched * float(np.median(ends)) / _STEPS / usual,
            float(np.median(ratios)) - 1 if ratios else 0.0,
            float(np.median(told)) / usual if told else 0.0,
        )


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
