"""One pair in this process: both programs timed in turns, then recorded.

No profiler has been in the process when it is timed. A block is a number of steps that nobody waits in, and one wait for
the device at its end, so that the host runs ahead as it does in a program. Times are microseconds.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.replay.pairs import Pair, Place, Step
from torch.profiler import ProfilerActivity, profile, schedule

from lanewise import nvml

__all__ = ["BLOCK_S", "OPTIONS", "ROUNDS", "Program", "in_turns", "measure", "ratio", "record"]

# Sets of options that people record with: what each costs differs, and with it the distortion.
OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "shapes": {"record_shapes": True},
    "stack": {"record_shapes": True, "with_stack": True},
    "full": {"record_shapes": True, "with_stack": True, "profile_memory": True, "with_modules": True},
}
_WARM_S, _WARM_STEPS = 0.15, 8
ROUNDS, BLOCK_S = 10, 0.04
_LEAST, _MOST, _LEAD = 3, 2000, 2
_GAUGE = 500
_WAIT, _WARMUP = 2, 3
_LARGEST, _FEWEST = 400_000, 3
_SIDES = ("slow", "fixed")


def measure(
    pair: Pair, place: Place, traces: Path, *, rounds: int = ROUNDS, block_s: float = BLOCK_S
) -> dict[str, Any]:
    """Time and record a pair; traces go to a folder. Returns what `truth.json` keeps of it."""
    began = time.monotonic()
    programs = {side: Program(pair, place, side == "fixed") for side in _SIDES}
    difference = _difference(*(program.once() for program in programs.values()))
    for program in programs.values():
        program.warm_up()
    clocks = [_reading(place)]
    times = in_turns(programs, rounds, block_s)
    clocks.append(_reading(place))
    recordings: list[dict[str, Any]] = []
    for side in _SIDES:
        for options in pair.options if side == "slow" else pair.options[:1]:
            name = f"{pair.name}-{side}" + ("" if options == "shapes" else f"-{options}")
            recorded = record(programs[side], pair, place, options, traces / f"{name}.json.gz")
            recordings.append({"name": name, "pair": pair.name, "role": side, "unprofiled": times[side]} | recorded)
    return {
        "name": pair.name,
        "fix": pair.fix,
        "change": pair.change,
        "codes": list(pair.codes),
        "nothing": pair.nothing,
        "compiled": pair.compiles,
        "difference": difference,
        "same_result": pair.tolerance is None or difference <= pair.tolerance,
        "slow_us": times["slow"]["median_us"],
        "fixed_us": times["fixed"]["median_us"],
        "gain_us": round(times["slow"]["median_us"] - times["fixed"]["median_us"], 3),
        "fixed_over_slow": ratio(*(times[side]["blocks_us"] for side in _SIDES)),
        "clocks": clocks,
        "seconds": round(time.monotonic() - began, 2),
        "recordings": recordings,
    }


class Program:
    """One side of a pair, with the process-wide switches that it wants."""

    def __init__(self, pair: Pair, place: Place, fixed: bool) -> None:
        self._setting: Callable[[bool], None] = pair.setting or (lambda fixed: None)
        self._fixed = fixed
        self._place = place
        self.switch()
        torch.manual_seed(0)
        self.step: Step = pair.build(place, fixed)

    def switch(self) -> None:
        self._setting(self._fixed)

    def once(self) -> torch.Tensor:
        """What its first step computes, on the host."""
        self.switch()
        torch.manual_seed(1)
        return self.step().detach().float().cpu()

    def warm_up(self) -> None:
        self.switch()
        until = time.perf_counter() + _WARM_S
        done = 0
        while done < _WARM_STEPS or time.perf_counter() < until:
            self.step()
            self._place.wait()
            done += 1

    def block(self, steps: int) -> float:
        """us per step."""
        self.switch()
        step = self.step
        for _ in range(_LEAD):
            step()
        self._place.wait()
        start = time.perf_counter_ns()
        for _ in range(steps):
            step()
        self._place.wait()
        return (time.perf_counter_ns() - start) / steps / 1e3


def in_turns(programs: dict[str, Program], rounds: int, block_s: float) -> dict[str, dict[str, Any]]:
    """Times of all programs, each once a round, in turns forwards and backwards."""
    steps: dict[str, int] = {}
    for side, program in programs.items():
        pace = program.block(_LEAST)
        steps[side] = max(_LEAST, min(_MOST, round(block_s * 1e6 / pace)))
    blocks: dict[str, list[float]] = {side: [] for side in programs}
    gauges: dict[str, list[float]] = {side: [] for side in programs}
    for turn in range(rounds):
        for side in list(programs) if turn % 2 else list(programs)[::-1]:
            gauges[side].append(_gauge())
            blocks[side].append(round(programs[side].block(steps[side]), 3))
    return {side: _summary(blocks[side], steps[side]) | {"gauge_us": gauges[side]} for side in programs}


def _gauge() -> float:
    """us that a small operator takes on the CPU now: a virtual machine's host has faster and slower minutes."""
    x = torch.zeros(8)
    start = time.perf_counter_ns()
    for _ in range(_GAUGE):
        x.add(1)
    return round((time.perf_counter_ns() - start) / _GAUGE / 1e3, 4)


def _summary(blocks: list[float], steps: int) -> dict[str, Any]:
    """Median and spread over blocks; quantiles are those of the blocks that lie nearest below."""
    ordered = sorted(blocks)
    last = len(ordered) - 1
    return {
        "median_us": round(median(ordered), 3),
        "p20_us": ordered[int(0.2 * last)],
        "p80_us": ordered[-1 - int(0.2 * last)],
        "rounds": len(blocks),
        "steps_per_block": steps,
        "samples": len(blocks) * steps,
        "blocks_us": blocks,
    }


def ratio(slow: list[float], fixed: list[float]) -> dict[str, float]:
    """Fixed over slow, round by round.

    A host that changes its speed between rounds, as that of a virtual machine does, changes it for both programs of one.
    """
    each = sorted(b / a for a, b in zip(slow, fixed, strict=True))
    last = len(each) - 1
    low, high = each[int(0.2 * last)], each[-1 - int(0.2 * last)]
    return {"median": round(median(each), 4), "p20": round(low, 4), "p80": round(high, 4)}


def _difference(slow: torch.Tensor, fixed: torch.Tensor) -> float:
    """Relative distance of two results."""
    if slow.shape != fixed.shape:
        return float("inf")
    distance = (slow - fixed).norm() / slow.norm().clamp_min(1e-30)
    return float(f"{distance.item():.3g}")


def record(program: Program, pair: Pair, place: Place, options: str, path: Path) -> dict[str, Any]:
    """Record as many steps as fit into a small file."""
    active = pair.active
    while True:
        gauge = _gauge()
        events = _recorded(program, place, active, OPTIONS[options])
        packed = gzip.compress(events, 6, mtime=0)
        if len(packed) <= _LARGEST or active <= _FEWEST:
            break
        active = max(_FEWEST, min(active - 1, active * _LARGEST // len(packed)))
    path.write_bytes(packed)
    chosen = {"record_shapes": False, "with_stack": False, "profile_memory": False, "with_modules": False}
    recorded = {"active": active, "wait": _WAIT, "warmup": _WARMUP, "options": chosen | OPTIONS[options]}
    return {
        "file": path.name,
        "bytes": len(packed),
        **recorded,
        "gauge_us": gauge,
        "recorded": _as_recorded(json.loads(events)),
    }


def _recorded(program: Program, place: Place, active: int, options: dict[str, bool]) -> bytes:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if place.cuda else [])]
    program.switch()
    step = program.step
    place.wait()
    with profile(activities=activities, schedule=schedule(wait=_WAIT, warmup=_WARMUP, active=active, repeat=1),
                 acc_events=True, **options) as profiler:  # fmt: skip
        for _ in range(_WAIT + _WARMUP + active):
            step()
            profiler.step()
    # The file's own name is written into it: none of the machine's folders should be.
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            profiler.export_chrome_trace("trace.json")
            return Path("trace.json").read_bytes()
        finally:
            os.chdir(before)


def _as_recorded(trace: dict[str, Any]) -> dict[str, Any]:
    """Step times that the file shows: the host's steps, and all of them with the device's work to its end."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    steps = sorted(
        (float(event["ts"]), float(event["dur"]))
        for event in events
        if event["name"].startswith("ProfilerStep#") and event.get("cat") != "gpu_user_annotation"
    )
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    ends = [float(e["ts"]) + float(e["dur"]) for e in device] + [ts + dur for ts, dur in steps]
    return {
        "host_step_us": round(median(dur for _, dur in steps), 3),
        "to_end_us": round((max(ends) - steps[0][0]) / len(steps), 3),
        "device_busy_us": round(sum(float(e["dur"]) for e in device) / len(steps), 3),
        "device_operations": round(len(device) / len(steps), 2),
        "rows": len(events),
    }


def _reading(place: Place) -> dict[str, Any] | None:
    if not place.cuda:
        return None
    reading = nvml.read(str(torch.cuda.get_device_properties(place.device).uuid))
    return reading._asdict() if reading else None
