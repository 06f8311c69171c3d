"""What one process of a comparison does when it is told: run steps, attach and detach, or measure something of its own.

run         so many steps of a program, timed
attach      the arm's profiler is on from here on; `detach` ends it
pairs       steps with and without `watch` in turn
turns       short periods whose first step is watched, beside periods without
window      device time of each kernel in a few steps, as `watch` or torch's profiler tells
size        contexts, bytes and memory after so many watched steps
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from benchmarks.context import empty, kernels
from benchmarks.context.arms import WATCH, attached
from benchmarks.context.programs import PROGRAMS
from benchmarks.crew import Answer, Make

import lanewise

__all__ = ["make_member"]

Step = Callable[[], None]


def make_member(programs: tuple[str, ...], device: str, warm_s: float = 0.3) -> Make:
    """A process that has these programs, each of which ran for a while."""

    def make() -> Callable[..., Answer]:
        torch.set_num_threads(1)
        steps = {program: _make_step(program, device) for program in programs}
        for step in steps.values():
            step()
            until = time.monotonic() + warm_s
            while time.monotonic() < until:
                step()
        _stay_on_few_cores()
        return _Member(steps).answer

    return make


def _stay_on_few_cores() -> None:
    """All processes of a comparison take turns on the same four cores: one core is faster than another, by a third."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= 10:
        for thread in os.listdir("/proc/self/task"):
            # One that has ended meanwhile needs no core.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread), cores[2:10:2])


class _Member:
    def __init__(self, steps: dict[str, Step]) -> None:
        self._steps = steps
        self._attached: Generator[None, bool | None] | None = None
        self._left: Answer = {}
        self._windows: dict[str, kernels.Source] = {}

    def answer(self, do: str, **given: Any) -> Answer:
        """One request."""
        if program := given.pop("program", None):
            given["step"] = self._steps[program]
        return getattr(self, f"_{do}")(**given)

    def _run(self, step: Step, count: int) -> Answer:
        begin = time.process_time_ns()
        return {"ns": _timed(step, count), "cpu_ns": time.process_time_ns() - begin}

    def _attach(self, arm: str) -> Answer:
        self._left = {}
        self._attached = self._inside(arm)
        next(self._attached)
        return {}

    def _detach(self, export: bool) -> Answer:
        assert self._attached is not None
        try:
            self._attached.send(export)
        except StopIteration:
            self._attached = None
        return self._left

    def _inside(self, arm: str) -> Generator[None, bool | None]:
        # A trace of many launches takes longer to write than all the rest: it is asked for at the end.
        wanted = True
        with attached(arm, self._left, lambda: wanted):
            wanted = bool((yield))

    def _pairs(self, step: Step, arm: str, seconds: float, least: int = 5) -> Answer:
        return _pairs(step, arm, seconds, least)

    def _turns(self, step: Step, arm: str, seconds: float) -> Answer:
        return _turns(step, arm, seconds)

    def _window(self, step: Step, source: str, count: int, warm_s: float) -> Answer:
        if source not in self._windows:
            self._windows[source] = kernels.SOURCES[source]()
        return self._windows[source].window(step, count, warm_s)

    def _size(self, step: Step, arm: str, steps: int) -> Answer:
        resident = _resident_bytes()
        result: Answer = {"steps": steps}
        with attached(arm, result):
            for _ in range(steps):
                step()
            result["resident_during"] = _resident_bytes() - resident
        result["resident_after"] = _resident_bytes() - resident
        return result


def _make_step(program: str, device: str) -> Step:
    """A step that ends when the device is idle."""
    step = PROGRAMS[program](device)
    if device == "cpu":
        return step

    def whole() -> None:
        step()
        torch.cuda.synchronize()

    return whole


def _timed(step: Step, count: int) -> list[int]:
    times: list[int] = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    return times


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def _watching(arm: str) -> Any:
    """A watcher and its collector, which is switched by hand."""
    watcher = lanewise.watch(measure=False, way="native", **WATCH.get(arm, {}))
    watcher.start()
    # From here on only such calls are boundaries: nothing else of ours is in the program's way.
    watcher.step()
    collector: Any = watcher._collector
    collector.off()
    return watcher, collector


def _pairs(step: Step, arm: str, seconds: float, least: int) -> Answer:
    """Rounds of four steps, without, with, with, without, until the time is used. Switching is timed apart."""
    watcher, collector = _watching(arm)
    on, off = collector.on, collector.off
    if arm == "empty":
        module = empty.load()
        on, off = module.on, module.off
    elif arm == "null":
        on = off
    on()
    _timed(step, 2)
    off()
    _timed(step, 1)
    answer: Answer = {"without_ns": [], "within_ns": [], "without_cpu_ns": [], "within_cpu_ns": [], "switch_ns": []}
    until = time.monotonic() + seconds
    rounds = 0
    while rounds < least or time.monotonic() < until:
        for side in ("without", "within", "within", "without"):
            begin = time.perf_counter_ns()
            (on if side == "within" else off)()
            answer["switch_ns"].append(time.perf_counter_ns() - begin)
            cpu = time.process_time_ns()
            answer[f"{side}_ns"] += _timed(step, 1)
            answer[f"{side}_cpu_ns"].append(time.process_time_ns() - cpu)
        rounds += 1
    off()
    begin = time.perf_counter_ns()
    watcher.stop()
    stop_ns = time.perf_counter_ns() - begin
    counts = collector._module.snapshot()
    watched = watcher.tree.info.watched
    return answer | {
        "stop_ns": stop_ns,
        "callbacks": sum(one["callbacks"] for one in counts["threads"]),
        "callback_ns": watched.callback_ns if watched else 0,
        "counts": counts["device"],
        "losses": watched.losses if watched else {},
        "device": watched.device if watched else "",
    }


def _turns(step: Step, arm: str, seconds: float, period: int = 3) -> Answer:
    """Periods of three steps, of which the first is watched or none is, in turn, each with what switching takes.

    What a watched step costs beyond itself, because it leaves colder caches behind, shows in the steps after it.
    """
    watcher, collector = _watching(arm)
    collector.on()
    _timed(step, 5)
    collector.off()
    answer: Answer = {"period": period, "without_ns": [], "within_ns": [], "step_ns": []}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for side in ("without", "within", "within", "without"):
            begin = time.perf_counter_ns()
            for at in range(period):
                if side == "within" and arm != "null":
                    # What `every=50` does at its boundaries.
                    if at == 0:
                        collector.on()
                    elif at == 1:
                        collector.off()
                step()
            answer[f"{side}_ns"].append(time.perf_counter_ns() - begin)
    watcher.stop()
    return answer
