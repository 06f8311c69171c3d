"""Structs of a sweep. Their JSON form is the public schema `lanewise.sweep/1`.

Names in here that come from a trace or a program are untrusted text: every output escapes them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lanewise.shown import Shown

__all__ = ["SWEEP_SCHEMA", "Crossover", "Sweep", "SweepPoint"]

SWEEP_SCHEMA = "lanewise.sweep/1"


class SweepPoint(msgspec.Struct, frozen=True):
    """One value: what was recorded, and what was predicted from the first recording alone.

    Attributes:
        value: as it was given to the program.
        step_us: the step without the profiler, us; None where nothing was recorded.
        regime: what it is bound by; "" where nothing was recorded.
        predicted_us, predicted_regime: the same as predicted; None and "" where nothing was, and for the first value.
        host_us, device_us: what a step would take if the device, or the host, took no time; None without device work.
        predicted_device_us: the latter as predicted.
        slower: how many times as long everything took on the host as while the first value was recorded; 1 if unknown.
        trace: the file. failed: why there is none, "" otherwise.
    """

    value: str
    step_us: float | None = None
    regime: str = ""
    predicted_us: float | None = None
    predicted_regime: str = ""
    host_us: float | None = None
    device_us: float | None = None
    predicted_device_us: float | None = None
    trace: str = ""
    failed: str = ""
    slower: float = 1.0


class Crossover(msgspec.Struct, frozen=True):
    """Where the regime changes.

    Attributes:
        at: the value from which on the work takes longer than what is spent whatever the value; None where that is not
            known more closely than by `where`.
        where: `within` the values, `below` the first, `beyond` the last; `none` where the step does not grow.
        fixed_us: what a step takes whatever the value, us.
        scatter: by which share the steps differ from fixed costs and work on average.
    """

    where: Literal["within", "below", "beyond", "none"]
    fixed_us: float
    at: float | None = None
    scatter: float = 0.0


class Sweep(Shown, msgspec.Struct, frozen=True):
    """A program at several values.

    Attributes:
        schema, version: of this struct, of lanewise.
        program: the command line without the value. name: of the value.
        device: what the steps ran on, `cpu` or a device's name.
        points: in the order of the values.
        measured, predicted: where the regime changes; None where it cannot be told.
        timed_share: share of the operators' time in the first recording that the prediction knows how it grows.
        note: why something is missing, "" otherwise.
    """

    schema: str
    version: str
    program: str
    name: str
    device: str
    points: list[SweepPoint]
    measured: Crossover | None = None
    predicted: Crossover | None = None
    timed_share: float | None = None
    note: str = ""

    def __repr__(self) -> str:
        return f"<Sweep of {self.program[:100]!r} over {self.name}: {len(self.points)} values>"
