"""What a step takes at other batch sizes, from one recording: its operators are timed again as they would be then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from lanewise.diagnose.what_if.hardware import other_batch
from lanewise.diagnose.what_if.named import Named
from lanewise.diagnose.what_if.predict import predict_named
from lanewise.measure.facts import Facts
from lanewise.replay.apply import apply
from lanewise.replay.best_first import Wish
from lanewise.replay.change import Change, pace, scale
from lanewise.replay.simulate import simulate
from lanewise.search import installed_first
from lanewise.sweep.operator_timing import WHOLE, YARDSTICK, Order, Timed
from lanewise.sweep.recorded_step import FirstStep, first_step, threads_of
from lanewise.trace.metadata import from_metadata

__all__ = ["Predicted", "alone", "grown_on_cpu", "order_of", "predicted_sizes", "slower", "timed_share", "yardstick_of"]

_MAIN = "import sys; sys.path[:] = {search!r}; from lanewise.sweep.operator_timing import main; main()"
_ATTEMPTS, _LIMIT_S = 5, 300.0
_LEAST = 0.1
"""No kernel becomes shorter than this share of what it took, however the clock trembled."""


@dataclass(frozen=True)
class Predicted:
    """A step at another batch size, us.

    Attributes:
        step_us: what it takes. regime: by name, "" without a device. device_us: what the device alone needs, None without.
    """

    step_us: float
    regime: str
    device_us: float | None


def alone(facts: Facts, change: Change) -> tuple[float, float]:
    """What a step with a change would take if the device, and if the host, took no time; us."""
    graph = facts.unprofiled.graph
    work = facts.trace.device_work
    without_device = simulate(apply(graph, change + scale(work, 0.0))).step_ns
    without_host = simulate(apply(graph, change + pace(0.0))).step_ns
    return without_device / 1e3, without_host / 1e3


def predicted_sizes(facts: Facts, sizes: Sequence[int]) -> tuple[list[Predicted], float] | None:
    """The step at each of some batch sizes, the first of which is that of the recording, and which share of the operators'
    time it is known of how it grows. None where no operator could be timed."""
    step = first_step(facts)
    found = _timed(order_of(facts, step, sizes))
    if not found:
        return None
    whole = found.pop(WHOLE, None)
    (yardstick_s,) = found.pop(YARDSTICK, [0.0])
    share = timed_share(facts, step, found)
    if facts.on_cpu:
        if whole is None:
            return None
        steps = grown_on_cpu(facts, [1e6 * seconds for seconds in whole], 1e6 * yardstick_s)
        return [Predicted(us, "", None) for us in steps], share
    return [_with_device(facts, step, found, place, size / sizes[0]) for place, size in enumerate(sizes)], share


def grown_on_cpu(facts: Facts, operators_us: Sequence[float], yardstick_us: float) -> list[float]:
    """A step on a CPU at each size, us: as recorded, and longer by what its operators then take more, as they would have
    taken it while the step was recorded. The operators were timed at a moment with this yardstick."""
    by = slower(facts, yardstick_us)
    return [facts.unprofiled.step_ns / 1e3 + by * (us - operators_us[0]) for us in operators_us]


def slower(facts: Facts, yardstick_us: float) -> float:
    """How many times as long everything took on the host while a step was recorded as at a moment with this yardstick; 1
    where that is not known."""
    then = yardstick_of(facts)
    return then / yardstick_us if then and yardstick_us else 1.0


def yardstick_of(facts: Facts) -> float:
    """How long the yardstick took while a step was recorded, us; 0 where that is not known."""
    recorded = from_metadata(facts.trace.metadata)
    return (recorded.yardstick_us if recorded is not None else None) or 0.0


def order_of(facts: Facts, step: FirstStep, sizes: Sequence[int]) -> Order:
    """What is to be timed to know how a step grows."""
    return Order(
        calls=step.calls,
        skip=step.skip,
        batch=sizes[0],
        sizes=list(sizes),
        parameters=step.parameters,
        device="cpu" if facts.on_cpu else "cuda",
        threads=threads_of(facts) if facts.on_cpu else 0,
    )


def _timed(order: Order) -> dict[int, list[float]]:
    """Seconds at each size by call; of what can be timed."""
    search = [str(Path(__file__).resolve().parents[2]), *installed_first()]
    found: dict[int, list[float]] = {}
    for _ in range(_ATTEMPTS):
        try:
            ended = subprocess.run(
                [sys.executable, "-I", "-c", _MAIN.format(search=search)],
                input=msgspec.json.encode(order),
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("LANEWISE_DEBUG") else subprocess.DEVNULL,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return found
        lines = [msgspec.json.decode(line, type=Timed) for line in ended.stdout.splitlines()]
        found |= {line.call: line.seconds for line in lines if line.seconds}
        if ended.returncode == 0 or not lines:
            return found
        # It crashed in the last call that it tried: once more, without that one.
        order = msgspec.structs.replace(order, skip=[*order.skip, lines[-1].call])
    return found


def timed_share(facts: Facts, step: FirstStep, found: Collection[int]) -> float:
    """Share of the operators' time that is of calls that were timed, or of which it is known that they do not grow."""
    known = set(found) | set(step.skip)
    for place, call in enumerate(step.calls):
        if call.parent in known:
            known.add(place)
    own = facts.host.self_time[step.events].astype(np.float64)
    if not facts.on_cpu:
        own = facts.host.accumulate(facts.device_time_of_call)[step.events].astype(np.float64)
        own -= np.bincount(
            [call.parent for call in step.calls if call.parent >= 0],
            weights=[own[place] for place, call in enumerate(step.calls) if call.parent >= 0],
            minlength=len(own),
        )
    operators = np.array([call.name.startswith("aten::") for call in step.calls])
    total = float(own[operators].sum())
    timed = np.isin(np.arange(len(own)), list(known)) & operators
    return float(own[timed].sum()) / total if total else 0.0


def _with_device(facts: Facts, step: FirstStep, found: dict[int, list[float]], place: int, factor: float) -> Predicted:
    change = _grown(facts, step, found, place, factor)
    prediction = predict_named(facts, [Named(f"batch={factor:g}x", "", Wish(change, 0.0))])
    return Predicted(prediction.predicted.step_us, prediction.predicted.regime, alone(facts, change)[1])


def _grown(facts: Facts, step: FirstStep, found: dict[int, list[float]], place: int, factor: float) -> Change:
    """Device work of all steps as it would be: as timed, else as its grid says, unchanged where it is for parameters."""
    trace, parent = facts.trace, facts.host.parent
    rest = other_batch(facts, factor)
    events = trace.device_work
    by = np.ones(len(trace))
    by[rest.scaled] = rest.scaled_by
    every = facts.steady_events(np.flatnonzero(np.isin(trace.name, np.unique(trace.name[step.events]))))
    _, group = facts.signatures.groups(every)
    group_of = dict(zip(every.tolist(), group.tolist(), strict=True))
    more = {group_of[int(step.events[call])]: seconds[place] - seconds[0] for call, seconds in found.items()}
    more |= {group_of[int(step.events[call])]: 0.0 for call in step.skip}
    calls: dict[int, tuple[int, list[int]]] = {}
    for event, launch in zip(events.tolist(), trace.links.launch.tolist(), strict=True):
        at = int(parent[launch]) if launch >= 0 else -1
        while at >= 0 and group_of.get(at, -1) not in more:
            at = int(parent[at])
        if at >= 0:
            calls.setdefault(at, (group_of[at], []))[1].append(event)
    # By so much more as was timed, and not by so many times: a graph's time for a small call is mostly between its kernels.
    took = trace.end - trace.start
    for group, work in calls.values():
        by[work] = max(_LEAST, 1.0 + more[group] * 1e9 / max(1, int(took[work].sum())))
    return scale(events, by[events])
