"""The crossover of a program predicted and measured in one process: all sizes are timed in turns, again and again, then
the first is recorded. Whatever slows the machine down for a second, or this process as a whole, does so to all alike."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from benchmarks.sweep.programs import PROGRAMS

from lanewise.capture.recorder import record
from lanewise.capture.timing.yardstick import ASKS_FOR_PACE, Yardstick
from lanewise.diagnose.explain import facts_of
from lanewise.errors import LanewiseError
from lanewise.measure.facts import Facts
from lanewise.replay.change import Change
from lanewise.report.swept import Crossover
from lanewise.sweep.crossover import crossover_of_steps, crossover_with_device
from lanewise.sweep.operator_timing import OperatorTiming
from lanewise.sweep.predicted import alone, grown_on_cpu, order_of, predicted_sizes, slower, timed_share
from lanewise.sweep.recorded_step import first_step
from lanewise.trace.reader import read

__all__ = ["WITHIN", "in_turns"]

WITHIN = 1.25
_WARM_S, _STEPS = 0.3, 300
"""A program runs for a moment; then it is recorded, for as many steps as a recording needs."""
_RESAMPLED = 400

_ROUNDS, _TURN_S = 12, 0.02
_CARD_ROUNDS, _LAUNCHES, _QUEUED = 5, 5, 2
_FAR = 4.0
_SLEEP_CYCLES, _LONGEST_SLEEP = 10_000_000, 1_000_000_000
"""Of the device's clock: some 6 ms, and 0.6 s."""

Rounds = list[list[float]]
"""Of each round, a time for each size, us."""


def in_turns(name: str, device: str, sizes: Sequence[int], out: Path) -> dict[str, Any]:
    """What was measured and predicted of a program, as plain values.

    Its `between` is where nine of ten crossovers lie that are measured by rounds drawn again from those of the measurement.
    On a CPU `as_fast` is the prediction as if the machine had been as fast when the step was recorded. `grown` is the
    prediction with the host's time, on a CPU the step's, at the first size as timed instead of as recorded.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return (_on_cpu if device == "cpu" else _on_card)(name, sizes, out)


def _on_cpu(name: str, sizes: Sequence[int], out: Path) -> dict[str, Any]:
    """The steps and their operators have turns by turns, as lanewise times operators in a process of their own."""
    steps = [PROGRAMS[name](size, "cpu") for size in sizes]
    facts = _recorded(name, steps[0], out)
    first = first_step(facts)
    with torch.no_grad():
        timing = OperatorTiming(torch, order_of(facts, first, sizes))
        for _ in timing.one_by_one():
            pass
        turns = timing.turns()
    yardstick, paces = Yardstick(), list[float]()
    rounds: Rounds = []
    operators: Rounds = []
    for _ in range(_ROUNDS):
        pairs: list[tuple[float, float]] = []
        for step, turn in zip(steps, turns, strict=True):
            took = _cpu_us(step)
            with torch.no_grad():
                pairs.append((took, turn() * 1e6))
        rounds.append([took for took, _ in pairs])
        operators.append([took for _, took in pairs])
        paces.append(yardstick.us())
    curve, whole = _quick(rounds), _quick(operators)
    now = facts.unprofiled.step_ns / 1e3
    yardstick_us = statistics.quantiles(paces, n=4)[0]
    curves = {
        "predicted": [grown_on_cpu(facts, whole, yardstick_us)],
        "as_fast": [[now + us - whole[0] for us in whole]],
        "grown": [[curve[0] + us - whole[0] for us in whole]],
    }
    row = _judged(sizes, [rounds], curves)
    return row | {
        "operators_us": whole,
        "operators_rounds_us": operators,
        "timed_share": timed_share(facts, first, timing.known),
        "slower_when_recorded": slower(facts, yardstick_us),
    }


def _on_card(name: str, sizes: Sequence[int], out: Path) -> dict[str, Any]:
    """Operators are timed by a process of their own, as no other uses the device meanwhile."""
    host, device = _device_rounds(name, sizes)
    sizes = sizes[: len(host[0])]
    facts = _recorded(name, PROGRAMS[name](sizes[0], "cuda"), out)
    found = predicted_sizes(facts, sizes)
    if found is None:
        raise LanewiseError("no operator could be timed by itself")
    predictions, share = found
    later = [one.device_us or 0.0 for one in predictions]
    curves = {
        "predicted": [[alone(facts, Change())[0]] * len(sizes), later],
        "grown": [[_quick(host)[0]] * len(sizes), later],
    }
    return _judged(sizes, [host, device], curves) | {"timed_share": share}


def _judged(sizes: Sequence[int], timed: list[Rounds], curves: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Each prediction against what was measured: a step at each size, or what the host and the device need for one."""
    measured = _crossover(sizes, [_quick(rounds) for rounds in timed])
    between = _between(sizes, timed)
    row: dict[str, Any] = {"measured": msgspec.to_builtins(measured), "between": between}
    for key, each in curves.items():
        one = _crossover(sizes, each)
        row[key] = msgspec.to_builtins(one)
        if one and measured and one.at and measured.at:
            row[f"{key}_factor"] = round(one.at / measured.at, 3)
            row[f"{key}_agrees"] = bool(between) and between[0] / WITHIN <= one.at <= between[1] * WITHIN
    kinds = ("step",) if len(timed) == 1 else ("host", "device")
    for kind, rounds, each in zip(kinds, timed, curves["predicted"], strict=True):
        row |= {f"{kind}_us": _quick(rounds), f"{kind}_rounds_us": rounds, f"predicted_{kind}_us": each}
    return row


def _recorded(name: str, step: Callable[[], Any], out: Path) -> Facts:
    """From a program that has run for a moment."""
    os.environ[ASKS_FOR_PACE] = "1"
    begun = time.monotonic()
    while time.monotonic() - begun < _WARM_S:
        step()
    with record(out=out, name=name) as recorder:
        for _ in range(_STEPS):
            step()
            recorder.step()
    if recorder.path is None:
        raise LanewiseError(f"nothing was recorded: {recorder.problem}")
    return facts_of(read(recorder.path))


def _crossover(sizes: Sequence[int], curves: list[list[float]]) -> Crossover | None:
    if len(curves) == 1:
        return crossover_of_steps(sizes, curves[0])
    return crossover_with_device(sizes, curves[0], curves[1])


def _quick(rounds: Rounds) -> list[float]:
    """For each size the lower quartile: whoever shares the machine only slows."""
    return [statistics.quantiles(times, n=4)[0] for times in zip(*rounds, strict=True)]


def _between(sizes: Sequence[int], timed: list[Rounds]) -> list[float]:
    drawn = random.Random(0)
    found: list[float] = []
    for _ in range(_RESAMPLED):
        one = _crossover(sizes, [_quick(drawn.choices(rounds, k=len(rounds))) for rounds in timed])
        if one is not None and one.at:
            found.append(one.at)
    if len(found) < _RESAMPLED / 2:
        return []
    cuts = statistics.quantiles(found, n=20)
    return [cuts[0], cuts[-1]]


def _device_rounds(program: str, sizes: Sequence[int]) -> tuple[Rounds, Rounds]:
    """What the host needs to launch a step, and what the device needs to do it, neither waiting for the other; up to
    the first size at which the device needs far longer."""
    steps: list[Callable[[], Any]] = []
    for size in sizes:
        steps.append(step := PROGRAMS[program](size, "cuda"))
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        if _device_us(step) > _FAR * _launch_us(step):
            break
    host = [[_launch_us(step) for step in steps] for _ in range(_CARD_ROUNDS)]
    device = [[_device_us(step) for step in steps] for _ in range(_CARD_ROUNDS)]
    torch.cuda.empty_cache()  # another process times the operators
    return host, device


def _cpu_us(step: Callable[[], Any]) -> float:
    step()  # what others left in the caches is gone afterwards
    count, begun = 0, time.thread_time()
    while (took := time.thread_time() - begun) < _TURN_S or count < 2:
        step()
        count += 1
    return took / count * 1e6


def _launch_us(step: Callable[[], Any]) -> float:
    """Median of steps that find an empty queue."""
    found: list[float] = []
    for _ in range(_LAUNCHES):
        begun = time.perf_counter()
        step()
        found.append((time.perf_counter() - begun) * 1e6)
        torch.cuda.synchronize()
    return statistics.median(found)


def _device_us(step: Callable[[], Any]) -> float:
    """Of steps that all stand in the queue before the first begins: the device sleeps until they do."""
    cycles = _SLEEP_CYCLES
    while True:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(cycles)
        begin.record()
        for _ in range(_QUEUED):
            step()
        end.record()
        slept = not begin.query()
        end.synchronize()
        if slept:
            return begin.elapsed_time(end) * 1e3 / _QUEUED
        if cycles >= _LONGEST_SLEEP:
            raise RuntimeError("the device had begun before the steps stood in its queue")
        cycles *= 4
