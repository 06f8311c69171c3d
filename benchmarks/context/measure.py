"""One process, one measurement, printed as JSON: `python -m benchmarks.context.measure KIND PROGRAM ARM STEPS`.

Kinds:
    aba     steps without anything, with the arm's profiler, and without again
    pairs   single steps with and without in turn: what watching costs, as free of the machine's noise as can be
    turns   blocks of 50 steps with one of them watched, between blocks without
    size    contexts, bytes and memory after STEPS watched steps
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from benchmarks.context.programs import PROGRAMS

import lanewise


def resident_bytes() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def timed(step: Callable[[], None], count: int) -> list[int]:
    """Nanoseconds of each step."""
    times: list[int] = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    return times


@contextlib.contextmanager
def attached(arm: str, result: dict[str, Any]) -> Generator[None]:
    """The arm's profiler around what is inside."""
    begin = time.perf_counter_ns()
    if arm == "null":
        yield
    elif arm.startswith("watch"):
        watcher = lanewise.watch(measure=False, frames=arm == "watch", way="native")
        watcher.start()
        result["start_ms"] = (time.perf_counter_ns() - begin) / 1e6
        yield
        begin = time.perf_counter_ns()
        watcher.stop()
        tree = watcher.tree
        result["stop_ms"] = (time.perf_counter_ns() - begin) / 1e6
        watched = tree.info.watched
        assert watched is not None
        result |= {"contexts": len(tree), "callbacks": watched.callbacks, "losses": watched.losses}
        result |= {"callback_ns": watched.callback_ns, "linked": [tree.info.linked, tree.info.backward]}
        with tempfile.TemporaryDirectory() as folder:
            result["bytes"] = watcher.save(Path(folder) / "run.lw").stat().st_size
    else:
        profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            with_stack=arm != "profiler",
            record_shapes=arm == "profiler_all",
            profile_memory=arm == "profiler_all",
            with_modules=arm == "profiler_all",
        )
        profiler.start()
        result["start_ms"] = (time.perf_counter_ns() - begin) / 1e6
        yield
        begin = time.perf_counter_ns()
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            result["bytes"] = path.stat().st_size
        result["stop_ms"] = (time.perf_counter_ns() - begin) / 1e6


def aba(program: str, arm: str, steps: int) -> dict[str, Any]:
    """Before, during and after."""
    step = PROGRAMS[program]()
    timed(step, max(2, steps // 3))
    result: dict[str, Any] = {"before_ns": timed(step, steps)}
    resident = resident_bytes()
    with attached(arm, result):
        step()
        result["during_ns"] = timed(step, steps)
        result["resident_during"] = resident_bytes() - resident
    result["resident_after"] = resident_bytes() - resident
    result["after_ns"] = timed(step, steps)
    return result


def pairs(program: str, arm: str, count: int) -> dict[str, Any]:
    """Steps without, with, with, without, and so on; `count` of either."""
    step = PROGRAMS[program]()
    timed(step, 5)
    watcher = lanewise.watch(measure=False, frames=arm != "watch_operators", way="native", step_on="nothing:nothing")
    watcher.start()
    collector: Any = watcher._collector
    timed(step, 3)
    without: list[int] = []
    within: list[int] = []
    for at in range(2 * count):
        plain = at % 4 in (0, 3)
        if plain or arm == "null":
            collector.off()
        else:
            collector.on()
        (without if plain else within).append(timed(step, 1)[0])
    collector.off()
    callbacks, _ = collector.counts()
    watcher.stop()
    return {"without_ns": without, "within_ns": within, "callbacks": callbacks}


def turns(program: str, arm: str, blocks: int) -> dict[str, Any]:
    """Blocks of 50 steps without, and with the first of each 50 watched, in turn."""
    step = PROGRAMS[program]()
    timed(step, 50)
    watcher = lanewise.watch(measure=False, way="native", step_on="nothing:nothing")
    watcher.start()
    collector: Any = watcher._collector
    without: list[int] = []
    within: list[int] = []
    for block in range(2 * blocks):
        plain = block % 4 in (0, 3)
        begin = time.perf_counter_ns()
        for at in range(50):
            if not plain and arm != "null":
                # What `every=50` does at its boundaries.
                if at == 0:
                    collector.on()
                elif at == 1:
                    collector.off()
            step()
        (without if plain else within).append(time.perf_counter_ns() - begin)
        collector.off()
    watcher.stop()
    return {"without_ns": without, "within_ns": within}


def size(program: str, arm: str, steps: int) -> dict[str, Any]:
    """Contexts, bytes and memory."""
    step = PROGRAMS[program]()
    timed(step, 5)
    resident = resident_bytes()
    result: dict[str, Any] = {"steps": steps}
    with attached(arm, result):
        for _ in range(steps):
            step()
        result["resident_during"] = resident_bytes() - resident
    result["resident_after"] = resident_bytes() - resident
    return result


if __name__ == "__main__":
    kind, program, arm, count = sys.argv[1:5]
    torch.set_num_threads(1)
    answer = {"aba": aba, "pairs": pairs, "turns": turns, "size": size}[kind](program, arm, int(count))
    print(json.dumps(answer))
