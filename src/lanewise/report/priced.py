"""What a step costs, and what a finding would save of it: energy by the device's counter, money by the price of an hour."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from lanewise.report.model import Cost, Finding
from lanewise.report.prediction import Prediction
from lanewise.trace.metadata import Energy

__all__ = ["cost_of", "dollars", "priced", "priced_prediction"]

_S_PER_HOUR = 3600.0


def cost_of(step_us: float, energy: Energy | None, price: float) -> Cost | None:
    """What a step costs; None where nothing is known of it.

    Args:
        step_us: the step without the profiler, us; 0 where there is none.
        energy: what the device drew. price: of an hour, dollars; 0 for none.
    """
    if not step_us or (energy is None and not price):
        return None
    return Cost(
        joules_per_step=0.0 if energy is None else float(f"{_joules(step_us, energy):.4g}"),
        watts=0.0 if energy is None else round(energy.joules / energy.seconds, 1),
        dollars_per_hour=price,
        dollars_per_million_steps=dollars(step_us, price),
    )


def _joules(step_us: float, energy: Energy) -> float:
    """What a step of that length draws.

    Steps are counted while the program is watched, or after it was recorded, when the profiler's library stays attached
    and still slows every launch: on an H200 a step of small kernels took twice as long as before, at the same power.
    """
    counted_us = energy.seconds / energy.steps * 1e6
    return energy.joules / energy.steps * min(1.0, step_us / counted_us)


def priced(findings: Sequence[Finding], cost: Cost | None) -> list[Finding]:
    """Findings with what they would save.

    A device that waits draws less than one that works, and how much less was not measured: what it draws on average is an
    upper bound for time in which it waits.
    """
    if cost is None:
        return list(findings)
    return [
        structs.replace(
            finding,
            joules_per_step=float(f"{cost.watts * finding.recoverable_us_per_step / 1e6:.3g}"),
            dollars_per_million_steps=dollars(finding.recoverable_us_per_step, cost.dollars_per_hour),
        )
        if finding.recoverable_us_per_step > 0
        else finding
        for finding in findings
    ]


def priced_prediction(prediction: Prediction, price: float) -> Prediction:
    """A prediction with what its steps cost and its changes save, at the price of an hour in dollars."""
    now, then = (
        structs.replace(state, dollars_per_million_steps=dollars(state.step_us, price))
        for state in (prediction.now, prediction.predicted)
    )
    changes = [
        structs.replace(one, dollars_per_million_steps=dollars(one.gain_us, price)) for one in prediction.changes
    ]
    return structs.replace(prediction, now=now, predicted=then, changes=changes)


def dollars(us: float, price: float) -> float:
    """The price of so much time in each of a million steps: 1 us a million times is a second."""
    return float(f"{us * price / _S_PER_HOUR:.4g}")
