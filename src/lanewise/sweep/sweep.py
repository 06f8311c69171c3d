"""`sweep_of`: a program at several values -> a `Sweep`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from lanewise._version import __version__
from lanewise.capture.script import Program
from lanewise.diagnose.explain import facts_of
from lanewise.errors import InputError
from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES
from lanewise.replay.change import Change
from lanewise.report.quantity import format_quantity
from lanewise.report.swept import SWEEP_SCHEMA, Crossover, Sweep, SweepPoint
from lanewise.sweep.crossover import crossover_of_steps, crossover_with_device
from lanewise.sweep.over import Over
from lanewise.sweep.predicted import Predicted, alone, predicted_sizes, slower, yardstick_of
from lanewise.sweep.recorded import record
from lanewise.sweep.recorded_step import same_shapes
from lanewise.trace.reader import read

__all__ = ["FIXED", "WORK", "sweep_of"]

FIXED, WORK = "fixed costs", "the work"
"""What a step on the CPU is bound by."""


def sweep_of(
    program: Program, over: Over, out: Path, options: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> Sweep:
    """Record a program at each value, and predict all of them from the first.

    Args:
        program: without the value. over: the values, and how they reach it.
        out: folder for the traces. options: of `lanewise run`. say: gets a line for each value.

    Raises:
        InputError: nothing could be recorded with the first value; or the values do not reach the program.
    """
    points: list[SweepPoint] = []
    facts: list[Facts | None] = []
    grown, note, yardstick_us = None, "", 0.0
    for value in over.values:
        ended = record(program, over, value, out, options)
        if ended.trace is None:
            if not points:
                raise InputError(_first_failed(over, value, ended.why))
            say(f"{over.name}={value}: nothing was recorded ({ended.why})")
            points.append(SweepPoint(value, failed=ended.why))
            facts.append(None)
            continue
        measured = facts_of(read(ended.trace))
        if not points:
            # At once, as a machine that others use is as fast now as it was for the recording.
            grown, note = _predictions(over, measured)
            yardstick_us = yardstick_of(measured)
        points.append(_point(value, measured, str(ended.trace), yardstick_us))
        facts.append(measured)
        say(f"{over.name}={value}: {format_quantity('time', measured.unprofiled.step_ns)} per step")
    there = [one for one in facts if one is not None]
    first = there[0]
    if len(there) > 1 and all(same_shapes(first, one) for one in there[1:]):
        raise InputError(
            f"the program does the same with {over.shown(over.values[0])} and {over.shown(over.values[-1])}: put "
            f"{{{over.name}}} where its arguments take the value, or --over env:NAME=... for a variable"
        )
    return _swept(program, over, first, points, grown, note)


def _predictions(over: Over, first: Facts) -> tuple[tuple[list[Predicted], float] | None, str]:
    """What is predicted from the first recording; or why nothing is."""
    sizes = over.sizes
    if sizes is None:
        return None, f"Nothing is predicted: how a step grows with {over.name} is not known; with the batch size it is."
    found = predicted_sizes(first, sizes)
    nothing = "Nothing is predicted: no operator of the first recording could be timed by itself."
    return found, nothing if found is None else ""


def _swept(
    program: Program,
    over: Over,
    first: Facts,
    points: list[SweepPoint],
    grown: tuple[list[Predicted], float] | None,
    note: str,
) -> Sweep:
    share = None
    if grown is not None:
        predictions, share = grown
        later = [_with(point, predicted) for point, predicted in zip(points[1:], predictions[1:], strict=True)]
        points = [points[0], *later]
    measured, predicted = _crossovers(over, points)
    if first.on_cpu:
        points = [_on_cpu(point, measured, predicted) for point in points]
    return Sweep(
        schema=SWEEP_SCHEMA,
        version=__version__,
        program=" ".join(program.words),
        name=over.name,
        device="cpu" if first.on_cpu else first.device.name,
        points=points,
        measured=measured,
        predicted=predicted,
        timed_share=None if share is None else round(share, 4),
        note=note,
    )


def _point(value: str, facts: Facts, trace: str, yardstick_us: float) -> SweepPoint:
    """What was recorded with a value; `yardstick_us` is that of the first."""
    step_us = round(facts.unprofiled.step_ns / 1e3, 3)
    if facts.on_cpu:
        return SweepPoint(value, step_us=step_us, trace=trace, slower=round(slower(facts, yardstick_us), 3))
    host, device = alone(facts, Change())
    regime = REGIMES[facts.regime.name][1]
    return SweepPoint(value, step_us, regime, host_us=round(host, 3), device_us=round(device, 3), trace=trace)


def _with(point: SweepPoint, predicted: Predicted) -> SweepPoint:
    return msgspec.structs.replace(
        point,
        predicted_us=round(predicted.step_us, 3),
        predicted_regime=predicted.regime,
        predicted_device_us=None if predicted.device_us is None else round(predicted.device_us, 3),
    )


def _crossovers(over: Over, points: Sequence[SweepPoint]) -> tuple[Crossover | None, Crossover | None]:
    numbers = over.numbers
    if numbers is None:
        return None, None
    rows = [(size, point) for size, point in zip(numbers, points, strict=True)]
    there = [(size, point) for size, point in rows if point.step_us is not None]
    sizes = [size for size, _ in there]
    known = [(size, point) for place, (size, point) in enumerate(rows) if place == 0 or point.predicted_us is not None]
    known_sizes = [size for size, _ in known]
    if points[0].device_us is not None:
        host = [point.host_us or 0.0 for _, point in there]
        first = [points[0].host_us or 0.0] * len(known)
        return (
            crossover_with_device(sizes, host, [point.device_us or 0.0 for _, point in there]),
            crossover_with_device(
                known_sizes, first, [point.predicted_device_us or point.device_us or 0.0 for _, point in known]
            ),
        )
    steps = [(point.step_us or 0.0) / point.slower for _, point in there]
    predicted = [point.predicted_us or point.step_us or 0.0 for _, point in known]
    return crossover_of_steps(sizes, steps), crossover_of_steps(known_sizes, predicted)


def _on_cpu(point: SweepPoint, measured: Crossover | None, predicted: Crossover | None) -> SweepPoint:
    """With what binds its step: fixed costs as long as they are half of it."""

    def bound(step_us: float | None, crossover: Crossover | None) -> str:
        if step_us is None or crossover is None:
            return ""
        return FIXED if crossover.where == "none" or step_us < 2 * crossover.fixed_us else WORK

    return msgspec.structs.replace(
        point, regime=bound(point.step_us, measured), predicted_regime=bound(point.predicted_us, predicted)
    )


def _first_failed(over: Over, value: str, why: str) -> str:
    place = "" if over.environment else f"; {{{over.name}}} in its arguments, or --over env:NAME=..., puts it elsewhere"
    return f"nothing was recorded with {over.shown(value)}: {why}{place}"
