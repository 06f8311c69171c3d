"""One measurement in this process. Each kind takes the name of a program, of an arm, the device, and a number.

aba         steps without anything, with the arm's profiler, and without again
pairs       steps with and without in turn: what watching costs, as free of the machine's noise as can be
turns       blocks of 50 steps with one of them watched, between blocks without
size        contexts, bytes and memory after so many watched steps
agreement   the tree of a watch beside the tree of a full trace of the same steps
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.context.agreement import agreement
from benchmarks.context.arms import KINETO, WATCH, attached
from benchmarks.context.programs import PROGRAMS

import lanewise

__all__ = ["KINDS"]

Step = Callable[[], None]


def resident_bytes() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def make_step(program: str, device: str) -> Step:
    """A step that ends when the device is idle."""
    step = PROGRAMS[program](device)
    if device == "cpu":
        return step

    def whole() -> None:
        step()
        torch.cuda.synchronize()

    return whole


def timed(step: Step, count: int) -> list[int]:
    """Nanoseconds of each step."""
    times: list[int] = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    return times


def aba(program: str, arm: str, device: str, steps: int) -> dict[str, Any]:
    """Before, during and after."""
    step = make_step(program, device)
    timed(step, max(2, steps // 3))
    result: dict[str, Any] = {"before_ns": timed(step, steps)}
    resident = resident_bytes()
    # A trace of a hundred thousand launches takes longer to write than all the rest.
    with attached(arm, result, export=program != "adds" or arm not in KINETO):
        timed(step, 2)
        result["during_ns"] = timed(step, steps)
        result["resident_during"] = resident_bytes() - resident
    result["resident_after"] = resident_bytes() - resident
    timed(step, 2)
    result["after_ns"] = timed(step, steps)
    return result


def _watching(arm: str) -> Any:
    """A watcher and its collector, which is switched by hand."""
    watcher = lanewise.watch(measure=False, way="native", step_on="nothing:nothing", **WATCH.get(arm, {}))
    watcher.start()
    collector: Any = watcher._collector
    return watcher, collector


def pairs(program: str, arm: str, device: str, count: int) -> dict[str, Any]:
    """Steps without, with, with, without, and so on; `count` of either, for each of `arm`, which is several with commas.

    Switching itself is timed apart.
    """
    step = make_step(program, device)
    timed(step, 5)
    return {one: _pairs(step, one, count) for one in arm.split(",")}


def _pairs(step: Step, arm: str, count: int) -> dict[str, Any]:
    watcher, collector = _watching(arm)
    timed(step, 3)
    within: list[int] = []
    without: list[int] = []
    switches: list[int] = []
    for at in range(2 * count):
        plain = at % 4 in (0, 3)
        begin = time.perf_counter_ns()
        if plain or arm == "null":
            collector.off()
        else:
            collector.on()
        switches.append(time.perf_counter_ns() - begin)
        (without if plain else within).append(timed(step, 1)[0])
    collector.off()
    begin = time.perf_counter_ns()
    watcher.stop()
    stop_ns = time.perf_counter_ns() - begin
    counts = collector._module.snapshot()
    watched = watcher.tree.info.watched
    return {
        "without_ns": without,
        "within_ns": within,
        # Steps 1, 5, 9 follow a switch to on, steps 3, 7, 11 one to off.
        "on_ns": switches[1::4],
        "off_ns": switches[3::4],
        "stop_ns": stop_ns,
        "callbacks": sum(one["callbacks"] for one in counts["threads"]),
        "callback_ns": watched.callback_ns if watched else 0,
        "counts": counts["device"],
        "losses": watched.losses if watched else {},
        "device": watched.device if watched else "",
    }


def turns(program: str, arm: str, device: str, blocks: int) -> dict[str, Any]:
    """Blocks of 50 steps without, and with the first of each 50 watched, in turn."""
    step = make_step(program, device)
    timed(step, 50)
    watcher, collector = _watching(arm)
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


def size(program: str, arm: str, device: str, steps: int) -> dict[str, Any]:
    """Contexts, bytes and memory."""
    step = make_step(program, device)
    timed(step, 5)
    resident = resident_bytes()
    result: dict[str, Any] = {"steps": steps}
    with attached(arm, result):
        for _ in range(steps):
            step()
        result["resident_during"] = resident_bytes() - resident
    result["resident_after"] = resident_bytes() - resident
    return result


def agree(program: str, arm: str, device: str, steps: int) -> dict[str, Any]:
    """How far both trees agree; `arm` says nothing here."""
    return agreement(make_step(program, device), device, steps)


KINDS: dict[str, Callable[[str, str, str, int], dict[str, Any]]] = {
    "aba": aba,
    "pairs": pairs,
    "turns": turns,
    "size": size,
    "agreement": agree,
}
