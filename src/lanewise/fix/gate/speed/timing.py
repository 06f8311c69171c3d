"""The timing gate: arms take turns in random order, without a profiler; statistics are those of `lanewise.compare`.

A sample is the wall time of several calls, waited for on every stream, over their number. The program with
itself is one of the arms: it shows what the machine does to a ratio that is 1.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lanewise.compare.statistics import Estimate, estimate, holm, judge
from lanewise.fix.candidates.candidate import Variant
from lanewise.fix.gate.inputs import jittered
from lanewise.fix.gate.speed.clocks import sm_clock
from lanewise.fix.gate.speed.repeats import FreshInputs, Repeats
from lanewise.fix.gate.tolerances import error_of, other_masks
from lanewise.fix.model import ArmTime, Timing
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import copy_call, same_bits, tensors_of, values_of

__all__ = [
    "LOOKS",
    "NULL",
    "WITHIN",
    "Samples",
    "Schedule",
    "adjust",
    "arm_times",
    "measure",
    "settled",
    "timing_of",
]

LOOKS = (10, 20, 40)
"""Rounds after which it may be settled; each look is tested at a third of 5 %."""

WITHIN = 0.01
"""A step whose time differs by less: no difference."""

NULL = "null"
"""The program as it is, once more, under another name."""

_SAMPLES = 3
_LEAST_SAMPLE_S, _MOST_CALLS = 0.004, 2000
_LEAST_APART = 1e-2
_WARM_S = 0.2


class Schedule(NamedTuple):
    """How long measuring may take, and when it is settled early.

    Attributes:
        seconds: for all arms together. looks: rounds after which `done` is asked.
        enough: rounds without which nothing can be concluded. With fewer than eight no difference is beyond chance once
            ten candidates have been looked at three times, and all of the time would be wasted.
        patience: how many times `seconds` there may be spent on these.
    """

    seconds: float
    looks: tuple[int, ...] = LOOKS
    enough: int = 8
    patience: float = 3.0


class Samples(NamedTuple):
    """Per arm its rounds, each an array of ns per call; and what went wrong with the results ("" if nothing).

    Attributes:
        rounds: by arm. wrong: by arm. repeats: what new inputs cost; nothing in it where that was not asked, or inputs may
            not change. clocks: of the card's multiprocessors after each round, MHz; 0 where they cannot be read.
    """

    rounds: dict[str, list[np.ndarray]]
    wrong: dict[str, str]
    repeats: Repeats
    clocks: dict[str, list[float]]


class _Nothing:
    def enable(self) -> None:
        pass

    def disable(self) -> None:
        pass


def measure(
    subject: Subject,
    state: State,
    arms: Mapping[str, Variant | None],
    schedule: Schedule,
    *,
    done: Callable[[dict[str, list[np.ndarray]]], bool] = lambda _: False,
    new_inputs: bool = False,
    apart: Callable[[int], float] = lambda _: _LEAST_APART,
    each: bool = False,
) -> Samples:
    """Time arms in turns.

    Args:
        arms: by name; None is the program as it is.
        schedule: time to spend.
        done: asked after each look whether it is settled.
        apart: by number of an output, how far two right results may be apart, as share of the largest value.
        each: whether every call is waited for, as who asks for a result does, or only the last one of several in a row.
        new_inputs: whether calls with inputs that are new each time are timed, too.

    Every round has inputs with other values, the same for all arms. The result of a call after each block is compared with
    the program's own for these values, outside of what is timed: an arm that stops working once it is timed is found.
    """
    variants: dict[str, Variant] = {name: arm or _Nothing() for name, arm in arms.items()}
    calls = [copy_call(call) for call in subject.calls]
    plan: dict[str, int] = {}
    paces: list[float] = []
    share = schedule.seconds / (len(variants) * (schedule.looks[0] + 2))
    for name, variant in variants.items():
        one = _warm_up(subject, state, variant, calls, min(_WARM_S, share))
        paces.append(one)
        block = max(_LEAST_SAMPLE_S, min(share / _SAMPLES, 0.05))
        plan[name] = max(1, min(_MOST_CALLS, round(block / max(one, 1e-9))))
    rounds: dict[str, list[np.ndarray]] = {name: [] for name in variants}
    wrong: dict[str, str] = {}
    repeats = Repeats({name: [] for name in variants}, {name: [] for name in variants})
    inputs = (
        FreshInputs(subject, subject.calls[0], min(paces), each=each) if new_inputs and _comparable(subject) else None
    )
    clock = sm_clock(subject.device)
    clocks: dict[str, list[float]] = {name: [] for name in variants}
    order, pick = list(variants), random.Random(0)
    began = time.monotonic()
    collecting = gc.isenabled()
    gc.collect(1)  # what the checks before it have left; a whole collection takes longer than a quick look
    gc.disable()
    try:
        for number in range(1, schedule.looks[-1] + 1):
            pick.shuffle(order)
            _other_values(calls, subject.calls, number)
            expected = _results(subject, state, calls)
            for name in order:
                samples, last = _block(subject, state, variants[name], calls, plan[name], each=each)
                rounds[name].append(samples)
                clocks[name].append(clock())
                if name not in wrong and not _alike(last, expected, apart):
                    wrong[name] = "while it was timed it gave another result for the same inputs"
            if inputs is not None:
                for name in order:
                    if name == NULL:
                        continue
                    with _on(variants[name], state):
                        given = _copied(inputs.block(repeats, name, calls[0]))
                    if name not in wrong and not _alike(given, _results(subject, state, [inputs.last]), apart):
                        wrong[name] = "while it was timed it gave another result for new inputs"
            longest = schedule.seconds * (1.05 if number >= schedule.enough else schedule.patience)
            late = time.monotonic() - began > longest
            if late or (number in schedule.looks and done(rounds)):
                break
    finally:
        if collecting:
            gc.enable()
    return Samples(rounds, wrong, repeats, clocks)


def timing_of(
    rounds: Mapping[str, list[np.ndarray]], before: str, after: str, *, looks: int = 3, null_of: str = ""
) -> Timing:
    """Timing of one arm against another.

    Args:
        looks: how often the p value may have been looked at.
        null_of: the arm that the null arm repeats, if not `before`. If the two differ beyond noise, the interval is wider
            by as much on both sides; a difference that does not reach further than that is `invalid`.
    """
    found = estimate(rounds[before], rounds[after], paired=True)
    found = found._replace(p=min(1.0, found.p * looks))
    noise, apart = 1.0, False
    if NULL in rounds:
        null = estimate(rounds[null_of or before], rounds[NULL], paired=True)
        noise = null.ratio
        proven = judge(null._replace(p=min(1.0, null.p * looks)), within=WITHIN) in {"faster", "slower"}
        apart = proven and abs(noise - 1) > WITHIN
    if apart:
        # Whatever makes the program differ from itself may have done the same to this ratio, either way.
        reach = math.exp(abs(math.log(noise)))
        found = found._replace(low=found.low / reach, high=found.high * reach)
    verdict = judge(found, within=WITHIN)
    if apart and verdict not in {"faster", "slower"}:
        verdict = "invalid"
    return Timing(
        ratio=found.ratio,
        low=_number(found.low),
        high=_number(found.high),
        mde=_number(found.mde),
        p=found.p,
        verdict=verdict,
        before_us=_median(rounds[before]) / 1e3,
        after_us=_median(rounds[after]) / 1e3,
        rounds=min(len(rounds[before]), len(rounds[after])),
        noise=noise,
    )


def adjust(timings: list[Timing]) -> list[Timing]:
    """The same timings with p values and verdicts adjusted for how many there are (Holm)."""
    adjusted: list[Timing] = []
    for timing, p in zip(timings, holm([timing.p for timing in timings]), strict=True):
        again = Estimate(timing.ratio, timing.low or math.nan, timing.high or math.nan, timing.mde, p)
        verdict = timing.verdict if timing.verdict == "invalid" else judge(again, within=WITHIN)
        adjusted.append(msgspec.structs.replace(timing, p=p, verdict=verdict))
    return adjusted


def settled(rounds: Mapping[str, list[np.ndarray]], before: str, after: str, *, margin: float) -> bool:
    """Whether one more look is not needed: it is faster by the margin, or slower, or the difference is none."""
    timing = timing_of(rounds, before, after)
    if timing.verdict == "faster":
        return timing.low > 1 + margin
    return timing.verdict in {"slower", "no difference"}


def arm_times(
    rounds: Mapping[str, list[np.ndarray]], clocks: Mapping[str, Sequence[float]] | None = None
) -> list[ArmTime]:
    """Every arm's median and spread, and the clock that it ran at."""
    times: list[ArmTime] = []
    for name, arm in rounds.items():
        samples = np.concatenate(arm) / 1e3
        low, middle, high = (float(value) for value in np.quantile(samples, (0.2, 0.5, 0.8)))
        mhz = float(np.median(seen)) if clocks and (seen := clocks.get(name)) else 0.0
        times.append(ArmTime(name, middle, low, high, len(samples), mhz))
    return times


def _block(
    subject: Subject, state: State, variant: Variant, calls: list[Any], count: int, *, each: bool
) -> tuple[np.ndarray, list[Any]]:
    """Samples of one arm in one round, and the results of its last call for the first inputs."""
    samples = np.empty(_SAMPLES)
    with _on(variant, state):
        for at in range(_SAMPLES):
            subject.wait()
            start = time.perf_counter_ns()
            for number in range(count):
                subject.run(calls[number % len(calls)])
                if each:
                    subject.wait()
            subject.wait()
            samples[at] = (time.perf_counter_ns() - start) / count
        return samples, _copied(subject.run(calls[0])[0]) if _comparable(subject) else []


@contextmanager
def _on(variant: Variant, state: State) -> Generator[None]:
    """With an arm in place; afterwards everything is as it was."""
    variant.enable()
    try:
        yield
    finally:
        variant.disable()
        state.restore()


def _results(subject: Subject, state: State, calls: list[Any]) -> list[Any]:
    if not _comparable(subject):
        return []
    try:
        return _copied(subject.run(calls[0])[0])
    finally:
        state.restore()


def _comparable(subject: Subject) -> bool:
    """Whether the same inputs give the same results; that of a step is what C5 looks at."""
    return subject.kind != "step" and not subject.random and not subject.mutates


def _other_values(calls: list[Any], originals: list[Any], number: int) -> None:
    """Floating inputs get the recorded values, each changed by a few per cent: in place, so that addresses stay."""
    for call, original in zip(calls, originals, strict=True):
        jittered(call, original, number)


def _warm_up(subject: Subject, state: State, variant: Variant, calls: list[Any], seconds: float) -> float:
    """Run for a while; seconds per call at its end."""
    variant.enable()
    try:
        subject.run(calls[0])
        subject.wait()
        began, count, last = time.perf_counter(), 0, 0.0
        while count < 2 or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            subject.run(calls[count % len(calls)])
            subject.wait()
            last = time.perf_counter() - start
            count += 1
        return min(last, (time.perf_counter() - began) / count)
    finally:
        variant.disable()
        state.restore()


def _copied(outputs: Any) -> list[Any]:
    return [values_of(tensor) for tensor in tensors_of(outputs)]


def _alike(a: list[Any], b: list[Any], apart: Callable[[int], float]) -> bool:
    """Equal but for the order of additions; a result that is not deterministic is the correctness gate's matter."""
    for at, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.shape != y.shape:
            return False
        if same_bits(x, y):
            continue
        if not x.dtype.is_floating_point or other_masks(x, y, y):
            return False
        if error_of(x, y).largest > max(_LEAST_APART, apart(at)):
            return False
    return True


def _median(rounds: list[np.ndarray]) -> float:
    return float(np.median(np.concatenate(rounds)))


def _number(value: float) -> float:
    return value if math.isfinite(value) else 0.0
