"""What the run is bound by: exactly one class per step and one for the run (diagnoses.md section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.regime.time_classes import CLASSES

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
        reason: why it is undetermined, "" otherwise.
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


def judge(facts: Core) -> Regime:
    """Judge the run and each of its steps."""
    table = facts.steps
    classes = facts.classes
    if classes.device == "":
        reason = "the trace holds no device work"
        return Regime("undetermined", {}, 0.0, ("undetermined",) * len(facts.trace.steps), "undetermined", reason, -1.0)

    per_step = tuple(regime_of(_shares(row)) for row in classes.of_step)
    chosen = classes.of_step[table.steady]
    recorded = regime_of(_shares(chosen.sum(axis=0)))
    shares = {name: value / table.step_ns for name, value in table.class_ns.items()} if table.step_ns else {}
    name = regime_of(shares)
    lost = facts.health.lost_work_share
    if lost > _LOST_FROM:
        name = "undetermined"
    reason = _reason(facts, lost) if name == "undetermined" else ""
    queued = _queued(facts) if name in _COULD_BE_QUEUED and lost <= _LOST_FROM else 0.0
    if queued:
        name, reason = "compute", ""
    busy = float(np.median(table.table["busy"][table.steady])) if table.steady.any() else 0.0
    delay = _queue_delay(facts)
    share = min(1.0, busy / table.step_ns) if table.step_ns else 0.0
    return Regime(name, shares, share, per_step, recorded, reason, delay, queued)


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

_UNTOLD = {
    "head": "too much of the time cannot be attributed: the device was busy with work from before the recording",
    "stalls": "too much of the time cannot be attributed: the profiler itself held up the program",
    "unlinked": "nothing in the file links device work to its launches, so that it does not say what the device waited for",
    "lost": "where the device seems idle, launches stand whose work is not in the trace",
}


def _reason(facts: Core, lost: float) -> str:
    """Why the run cannot be judged: the cause of most of the time that cannot be told."""
    if lost > _LOST_FROM:
        return f"{100 * lost:.0f} % of the launches have no device record, and what the device did then is not known"
    untold = {why: time.total for why, time in facts.classes.untold.items()}
    why = max(untold, key=lambda one: untold[one]) if any(untold.values()) else "head"
    if why != "blocked":
        return _UNTOLD[why]
    trace = facts.trace
    waits = trace.links.calls("wait")
    waits = waits[facts.host.waiting[waits]]
    call = trace.name_of(int(waits[np.argmax(trace.duration[waits])]))
    part = untold[why] / max(1, int(facts.classes.of_step.sum()))
    return (
        f"{100 * min(1.0, part):.0f} % of the time the host sits in {call} while nothing runs that was recorded; what it "
        "waits for may be in another process, on another card, or lost"
    )


def _shares(row: np.ndarray) -> dict[str, float]:
    total = float(row.sum())
    return {name: float(row[i]) / total for i, name in enumerate(CLASSES)} if total else {}


def _queue_delay(facts: Core) -> float:
    delay = facts.launches.device_start_delay
    chosen = (delay >= 0) & facts.in_steady_step[facts.trace.device_work]
    return float(np.median(delay[chosen])) if chosen.any() else -1.0
