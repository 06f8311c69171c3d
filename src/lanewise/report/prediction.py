"""Structs of a prediction. Their JSON form is the public schema `lanewise.prediction/1`.

Names in here that come from a trace are untrusted text: every output escapes them.
"""

from __future__ import annotations

import msgspec

from lanewise.shown import Shown

__all__ = ["PREDICTION_SCHEMA", "Applied", "Limit", "Prediction", "StepState"]

PREDICTION_SCHEMA = "lanewise.prediction/1"


class Limit(msgspec.Struct, frozen=True):
    """A part of a step's critical path: a kernel, the host's work in an operator, kernels starting; share of the step."""

    what: str
    share: float


class StepState(msgspec.Struct, frozen=True):
    """A step without the profiler, as it is or as it is predicted.

    Attributes:
        step_us: what it takes; us.
        low_us, high_us: 80 % interval.
        regime: what it is bound by, by name.
        shares: share of the step by class of time; empty without device work.
        limits: what its critical path consists of, the most first.
        dollars_per_million_steps: at the price that was given; 0 without one.
    """

    step_us: float
    low_us: float
    high_us: float
    regime: str
    shares: dict[str, float]
    limits: list[Limit]
    dollars_per_million_steps: float = 0.0


class Applied(msgspec.Struct, frozen=True):
    """One change and what it does. Gains are negative where a change makes the step longer.

    Attributes:
        change: as it was asked for.
        title: what it means here.
        alone_us, alone_low_us, alone_high_us: what it takes off the step by itself, us, with its 80 % interval.
        gain_us: what it takes off once those before it are made; the gains of all add up.
        leaves_us: the step after it and those before it.
        bound: whether it gives at most this.
        note: what one should know about it, "" for nothing.
        dollars_per_million_steps: what `gain_us` saves at the price that was given; 0 without one.
    """

    change: str
    title: str
    alone_us: float
    alone_low_us: float
    alone_high_us: float
    gain_us: float
    leaves_us: float
    bound: bool
    note: str
    dollars_per_million_steps: float = 0.0


class Prediction(Shown, msgspec.Struct, frozen=True):
    """What a step would be with some changes made.

    Attributes:
        schema, version: of this struct, of lanewise.
        source: the trace.
        now, predicted: the step without the profiler, and the same with all changes made.
        recorded_us: the step as recorded, us.
        timed: whether `now` was measured without a profiler and not computed.
        changes: in the order in which they are made.
    """

    schema: str
    version: str
    source: str
    now: StepState
    predicted: StepState
    recorded_us: float
    timed: bool
    changes: list[Applied]

    @property
    def speedup(self) -> float:
        """How many times as fast the predicted step is."""
        return self.now.step_us / self.predicted.step_us if self.predicted.step_us else 1.0

    def __repr__(self) -> str:
        steps = f"{self.now.step_us:.1f} us per step now, {self.predicted.step_us:.1f} us predicted"
        return f"<Prediction {self.source[-100:]!r}: {steps}, {len(self.changes)} changes>"
