"""What the recorder says about a recording, kept inside the trace file under the key `lanewise`.

The recorder writes this object, `explain` and `health` read it. It is plain data on the standard library alone, so
that a program can be recorded where only torch is installed and a trace can be read where torch is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lanewise.trace.file.captured_graphs import CapturedGraphs, captured_graphs

__all__ = ["KEY", "SCHEMA", "Energy", "Fault", "Recorded", "StepTimes", "from_metadata", "to_json"]

KEY = "lanewise"
"""Top-level key of the trace file."""

_MAX_TIMES = 1000
_MAX_MODULES = 200_000

SCHEMA = 1
"""Raised by one when a field changes its meaning or disappears; new fields do not raise it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Wall time per step over one stretch of the run, microseconds.

    A step lasts from boundary to boundary, without what the recorder does at a boundary (`host`; the other two methods
    hide it behind the device).

    `method` says what was timed: `host` - the time between step boundaries on the host, sound where the device keeps
    up; `device` - device timestamps at the boundaries, where the host runs ahead; `mean` - the stretch between two
    synchronisations divided by its steps, where the host runs ahead and nothing may be added to the stream. `mean`
    has one sample, so p20 and p80 equal the median. `times_us` are the samples themselves in their order, so that two
    runs can be compared with statistics. `behind_us`: how long after the end of each step the device was done with it,
    where that is known: in a job of many ranks, how long a rank that is early will wait for the others.
    """

    median_us: float
    p20_us: float
    p80_us: float
    samples: int
    steps: int
    method: str
    times_us: tuple[float, ...] = ()
    behind_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What the device drew over a stretch of the run without a profiler, by its own counter; J. `steps` may be a few that
    were not complete, `seconds` is wall time."""

    joules: float
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that went wrong while recording, or may have: a stable code and one sentence for the reader."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Facts about one recording.

    Attributes:
        unprofiled_step_us: median step time before any profiler started in this process; None if no step was timed.
        unprofiled: the samples behind it. yardstick_us: how long a fixed piece of work took just before and after these
            (`lanewise.capture.timing.yardstick`); None where it was not asked for.
        profiled: the recorded steps on the same clock, those before the host times settled left out.
        distortion: profiled over unprofiled step time; 1.0 means that profiling cost nothing.
        distortion_low, distortion_high: 95 % bootstrap interval of it; None with fewer than 5 samples on a side.
        step_source: what marked the steps: `optimizer`, `forward`, `function`, `call`, `profiler` (the program's own
            `prof.step()`) or `none` (the program was recorded whole).
        step_label: name of the optimizer class, module class or function that marked them.
        steps_before: steps that ran before recording began, the un-profiled and warm-up ones included.
        warmup: steps the profiler warmed up for; active: steps recorded.
        settled_after: recorded steps until the host times settled; None if they did not, or no step was found.
        stopped_by: `settled`, `cap`, `size`, `time`, `program ended`, `exception`, `interrupt` or `profiler` (stepped
            aside for the program's own).
        flags: profiler options as recorded (`shapes`, `stacks`, `memory`, `sync_events`, `all_threads`).
        costs_ms: what recording cost the program: `start`, `stop`, `export`.
        command: the command line, relative to the working directory, or [] when redacted.
        rank, world_size: of a distributed job, else None. node: number of the machine among those of the job.
        environment: versions, device, clocks, settings; see `lanewise.capture.machine`.
        graphs: CUDA graphs that were captured before the recording; None if none was, or it could not be followed.
        energy: what the device drew over the steps that followed; None where it does not count, or too few followed.
        modules: path and class of the program's modules, in the order of `named_modules()`; a path "" begins the next
            outermost one. Empty where none was seen or the list would be too long.
        faults: what went wrong, most important first.
    """

    schema: int = SCHEMA
    lanewise: str = ""
    unprofiled_step_us: float | None = None
    unprofiled: StepTimes | None = None
    yardstick_us: float | None = None
    profiled: StepTimes | None = None
    distortion: float | None = None
    distortion_low: float | None = None
    distortion_high: float | None = None
    step_source: str = "none"
    step_label: str = ""
    steps_before: int = 0
    warmup: int = 0
    active: int = 0
    settled_after: int | None = None
    stopped_by: str = ""
    flags: dict[str, bool] = field(default_factory=dict[str, bool])
    costs_ms: dict[str, float] = field(default_factory=dict[str, float])
    command: list[str] = field(default_factory=list[str])
    rank: int | None = None
    world_size: int | None = None
    node: int | None = None
    environment: dict[str, Any] = field(default_factory=dict[str, Any])
    graphs: CapturedGraphs | None = None
    energy: Energy | None = None
    modules: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    faults: list[Fault] = field(default_factory=list[Fault])


def to_json(recorded: Recorded) -> dict[str, Any]:
    """Plain JSON values, fields without a value left out."""
    return {name: value for name, value in dataclasses.asdict(recorded).items() if value not in (None, {}, [], "")}


def from_metadata(metadata: Mapping[str, Any]) -> Recorded | None:
    """The recorder's facts from a trace's top-level keys, or None if another tool recorded it.

    The file is untrusted: a field of the wrong type is dropped, an unknown one ignored, an unknown schema read as far
    as the names agree.
    """
    raw = metadata.get(KEY)
    if not isinstance(raw, Mapping):
        return None
    kept: dict[str, Any] = {}
    for name, check in _FIELDS.items():
        value = check(raw.get(name))
        if value is not None:
            kept[name] = value
    return Recorded(**kept)


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e15 else None


def _not_negative(value: Any) -> float | None:
    return 0.0 if isinstance(value, int | float) and value == 0 else _positive(value)


def _times(value: Any) -> StepTimes | None:
    if not isinstance(value, Mapping):
        return None
    median, p20, p80 = (_positive(value.get(name)) for name in ("median_us", "p20_us", "p80_us"))
    samples, steps, method = _whole(value.get("samples")), _whole(value.get("steps")), _text(value.get("method"))
    if median is None or samples is None or steps is None:
        return None
    times = _each(value.get("times_us"), _positive)
    behind = _each(value.get("behind_us"), _not_negative)
    return StepTimes(
        median_us=median,
        p20_us=p20 or median,
        p80_us=p80 or median,
        samples=samples,
        steps=steps,
        method=method or "",
        times_us=times,
        behind_us=behind if len(behind) == len(times) else (),
    )


def _each(listed: Any, check: Callable[[Any], float | None]) -> tuple[float, ...]:
    values = [check(value) for value in listed[:_MAX_TIMES]] if isinstance(listed, list | tuple) else []
    return tuple(value for value in values if value is not None)


def _energy(value: Any) -> Energy | None:
    if not isinstance(value, Mapping):
        return None
    joules, steps, seconds = _positive(value.get("joules")), _whole(value.get("steps")), _positive(value.get("seconds"))
    if joules is None or seconds is None or steps is None or steps < 1:
        return None
    return Energy(joules=joules, steps=steps, seconds=seconds)


def _flags(value: Any) -> dict[str, bool] | None:
    if not isinstance(value, Mapping):
        return None
    return {str(name)[:40]: on for name, on in value.items() if isinstance(on, bool)}


def _costs(value: Any) -> dict[str, float] | None:
    if not isinstance(value, Mapping):
        return None
    return {str(name)[:40]: cost for name, given in value.items() if (cost := _positive(given)) is not None}


def _command(value: Any) -> list[str] | None:
    return [word[:1000] for word in value[:200] if isinstance(word, str)] if isinstance(value, list) else None


def _facts(value: Any) -> dict[str, Any] | None:
    return {str(name): fact for name, fact in value.items()} if isinstance(value, Mapping) else None


def _modules(value: Any) -> list[tuple[str, str]] | None:
    if not isinstance(value, list):
        return None
    pairs = [entry for entry in value[:_MAX_MODULES] if isinstance(entry, list | tuple) and len(entry) == 2]
    return [(path, kind) for path, kind in pairs if isinstance(path, str) and isinstance(kind, str)]


def _faults(value: Any) -> list[Fault] | None:
    if not isinstance(value, list):
        return None
    found = [(_text(f.get("code")), f.get("sentence")) for f in value[:100] if isinstance(f, Mapping)]
    return [
        Fault(code=code, sentence=sentence[:1000]) for code, sentence in found if code and isinstance(sentence, str)
    ]


_FIELDS: dict[str, Any] = {
    "schema": _whole,
    "lanewise": _text,
    "graphs": captured_graphs,
    "unprofiled_step_us": _positive,
    "unprofiled": _times,
    "yardstick_us": _positive,
    "profiled": _times,
    "distortion": _positive,
    "distortion_low": _positive,
    "distortion_high": _positive,
    "step_source": _text,
    "step_label": _text,
    "steps_before": _whole,
    "warmup": _whole,
    "active": _whole,
    "settled_after": _whole,
    "stopped_by": _text,
    "flags": _flags,
    "costs_ms": _costs,
    "command": _command,
    "rank": _whole,
    "world_size": _whole,
    "node": _whole,
    "environment": _facts,
    "energy": _energy,
    "modules": _modules,
    "faults": _faults,
}
