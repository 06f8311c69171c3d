"""What the run is bound by: exactly one class per step and one for the run (diagnoses.md section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.regime.cold_calls import start_up_calls
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.trace.health import in_capture
from lanewise.trace.intervals import covered

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["REGIMES", "Regime", "judge", "regime_of"]

# Class that wins -> (code, name).
REGIMES: dict[str, tuple[str, str]] = {
    "host": ("REG101", "host-bound"),
    "compute": ("REG102", "device-bound"),
    "transfer": ("REG103", "transfer-bound"),
    "communication": ("REG104", "communication-bound"),
    "mixed": ("REG105", "mixed"),
    "undetermined": ("REG106", "undetermined"),
}

_WINS_FROM = 0.40
_LEAD = 0.10
_UNKNOWN_FROM = 0.20

# What a short recording may look like although the device was far behind when it began.
_COULD_BE_QUEUED = frozenset({"host", "mixed", "undetermined"})


@dataclass(frozen=True, eq=False)
class Regime:
    """What binds the run.

    Attributes:
        name: key of REGIMES.
        shares: share of the step time per class; sums to at most 1 (to 1 without rounding).
        busy_share: share of the step in which the device does anything.
        per_step: key of REGIMES for each recorded step.
        as_recorded: the same for the trace's own period; differs from `name` where the profiler distorts the regime.
        reason: why it is undetermined, as a sentence without its beginning and end; "" otherwise.
        why: the same as a key: `no device work`, or one of `TimeClasses.untold`.
        at_low, at_high: what it would be if the step took as little, or as long, as the interval of its computed time
            says; "" where that is the same, or was measured.
        queued_ns: how long work from before the recording kept the first operation waiting, ns, where that alone says that
            the device is behind; 0 elsewhere.
        queue_delay_ns: median launch-to-start delay of the steady steps; about 10 us where the host cannot keep up.
    """

    name: str
    shares: dict[str, float]
    busy_share: float
    per_step: tuple[str, ...]
    as_recorded: str
    reason: str
    queue_delay_ns: float
    queued_ns: float = 0.0
    why: str = ""
    at_low: str = ""
    at_high: str = ""

    @property
    def measures_the_program(self) -> bool:
        """Whether the trace says what the program costs, so that it makes sense to ask what a change would give."""
        return self.why not in _OF_NO_PROGRAM


def regime_of(shares: dict[str, float]) -> str:
    """The class with at least 40 % of the time and a lead of 10 points; otherwise mixed or undetermined."""
    if not shares or sum(shares.values()) <= 0:
        return "undetermined"
    if shares.get("unknown", 0.0) > _UNKNOWN_FROM:
        return "undetermined"
    candidates = sorted(
        ((shares.get(c, 0.0), c) for c in ("host", "compute", "transfer", "communication")), reverse=True
    )
    (best, name), (second, _) = candidates[0], candidates[1]
    return name if best >= _WINS_FROM and best - second >= _LEAD else "mixed"


def regime_at(class_ns: dict[str, float], step_ns: float) -> str:
    """What a step of these classes would be if it took `step_ns`: what the device does is as recorded, and unknown is for
    how long it waits for the host."""
    others = sum(ns for name, ns in class_ns.items() if name != "host")
    whole = max(step_ns, others)
    return (
        regime_of({**{name: ns / whole for name, ns in class_ns.items()}, "host": 1 - others / whole}) if whole else ""
    )


def judge(facts: Core) -> Regime:
    """Judge the run and each of its steps."""
    table = facts.steps
    classes = facts.classes
    if classes.device == "":
        reason, why = "the trace holds no device work", facts.device_records
        undetermined = ("undetermined",) * len(facts.trace.steps)
        return Regime("undetermined", {}, 0.0, undetermined, "undetermined", reason, -1.0, why=why)

    per_step = tuple(regime_of(_shares(row)) for row in classes.of_step)
    chosen = classes.of_step[table.steady]
    recorded = regime_of(_shares(chosen.sum(axis=0)))
    shares = {name: value / table.step_ns for name, value in table.class_ns.items()} if table.step_ns else {}
    name = regime_of(shares)
    why = _of_no_program(facts)
    if why:
        name = "undetermined"
    queued = _queued(facts) if name in _COULD_BE_QUEUED and not why else 0.0
    if queued:
        name = "compute"
    why = (why or _why(facts)) if name == "undetermined" else ""
    reason = _reason(facts, why) if why else ""
    if why in _AS_RECORDED:
        # What recording cost cannot be told either.
        shares = _shares(chosen.sum(axis=0))
    busy = float(np.median(table.table["busy"][table.steady])) if table.steady.any() else 0.0
    delay = _queue_delay(facts)
    share = min(1.0, busy / table.step_ns) if table.step_ns else 0.0
    at_low, at_high = (
        "" if why or queued or (other := regime_at(table.class_ns, end_ns)) == name else other
        for end_ns in (facts.unprofiled.low_ns, facts.unprofiled.high_ns)
    )
    return Regime(
        name,
        shares,
        share,
        per_step,
        recorded,
        reason,
        delay,
        queued,
        why,
        at_low=at_low,
        at_high=at_high,
    )


def _queued(facts: Core) -> float:
    """How long the first operation of a recording without marks waited for earlier work, if that is longer than all that
    was recorded after it: the host had run so far ahead; 0 otherwise."""
    backlog, steps = facts.classes.backlog, facts.trace.steps
    if len(steps) != 1 or not backlog.streams:
        return 0.0
    head = backlog.until - int(steps.start[0])
    return float(head) if head > facts.steps.period_ns else 0.0


# From this share of the launches on, what is missing may be anything.
_LOST_FROM = 0.20

# Recordings of something else than the program at work.
_AS_RECORDED = frozenset({"capture", "start"})
_OF_NO_PROGRAM = _AS_RECORDED | {"lost"}
# With so many of the launches captured, the recording is one of a capture, whatever else takes time in it.
_CAPTURED_FROM = 0.5

_UNTOLD = {
    "head": "too much of the time cannot be attributed: the device was busy with work from before the recording",
    "stalls": "too much of the time cannot be attributed: the profiler itself held up the program",
    "unlinked": "nothing in the file links device work to its launches, so that it does not say what the device waited for",
}


def _of_no_program(facts: Core) -> str:
    """What else than the program at work most of the recording holds; "" for a recording of a program."""
    if facts.health.lost_work_share > _LOST_FROM:
        return "lost"
    if len(facts.trace.steps) == 1 and _captured(facts) > _CAPTURED_FROM:
        return "capture"
    return next((why for why in sorted(_AS_RECORDED) if _in_most_steps(facts, why)), "")


def _in_most_steps(facts: Core, why: str) -> bool:
    """Whether too much of most steady steps cannot be told for this reason."""
    classes, steady = facts.classes, facts.steps.steady
    time = covered(classes.untold[why], classes.window_start[steady], classes.window_end[steady])
    much = time > _UNKNOWN_FROM * classes.of_step[steady].sum(axis=1)
    return bool(np.count_nonzero(much) * 2 > len(much))


def _captured(facts: Core) -> float:
    """Share of the launches that are made while a graph is captured."""
    launches = facts.trace.links.launches
    return float(np.mean(in_capture(facts.trace, launches))) if len(launches) else 0.0


def _untold_share(facts: Core, why: str) -> float:
    """Share of the steady time that cannot be told for this reason."""
    classes, steady = facts.classes, facts.steps.steady
    time = covered(classes.untold[why], classes.window_start[steady], classes.window_end[steady]).sum()
    return float(time) / max(1, int(classes.of_step[steady].sum()))


def _why(facts: Core) -> str:
    """The cause of most of the time that cannot be told."""
    untold = {why: time.total for why, time in facts.classes.untold.items()}
    return max(untold, key=lambda one: untold[one]) if any(untold.values()) else "head"


def _reason(facts: Core, why: str) -> str:
    trace = facts.trace
    match why:
        case "lost":
            lost = 100 * facts.health.lost_work_share
            if lost <= 100 * _LOST_FROM:
                return "where the device seems idle, launches stand whose work is not in the trace"
            return f"{lost:.0f} % of the launches have no device record, and what the device did then is not known"
        case "blocked":
            waits = trace.links.calls("wait")
            waits = waits[facts.host.waiting[waits]]
            call = trace.name_of(int(waits[np.argmax(trace.duration[waits])]))
            part = facts.classes.untold[why].total / max(1, int(facts.classes.of_step.sum()))
            return (
                f"{100 * min(1.0, part):.0f} % of the time the host sits in {call} while nothing runs that was recorded; "
                "what it waits for may be in another process, on another card, or lost"
            )
        case "held":
            return (
                f"{100 * _untold_share(facts, why):.0f} % of the time launched work does not begin although nothing that "
                "was recorded runs: rows are missing (the trace was cut down, say), another process has the GPU, or the "
                "driver submits late (Windows)"
            )
        case "capture":
            return (
                f"a graph is captured here: {100 * _captured(facts):.0f} % of the launches are only written down and run "
                "nothing, so that neither the host's time nor the GPU's is what a replay takes"
            )
        case "start":
            calls = start_up_calls(trace, facts.host)
            longest = int(calls[np.argmax(trace.duration[calls])])
            return (
                f"{100 * _untold_share(facts, why):.0f} % of the time goes into starting the device and loading kernels "
                f"({trace.name_of(longest)} alone took {_length(int(trace.duration[longest]))}), which a program pays once"
            )
        case _:
            return _UNTOLD[why]


def _length(ns: int) -> str:
    return f"{ns / 1e9:,.1f} s" if ns >= 1_000_000_000 else f"{ns / 1e6:,.1f} ms"


def _shares(row: np.ndarray) -> dict[str, float]:
    total = float(row.sum())
    return {name: float(row[i]) / total for i, name in enumerate(CLASSES)} if total else {}


def _queue_delay(facts: Core) -> float:
    delay = facts.launches.device_start_delay
    chosen = (delay >= 0) & facts.in_steady_step[facts.trace.device_work]
    return float(np.median(delay[chosen])) if chosen.any() else -1.0
