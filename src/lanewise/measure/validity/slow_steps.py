"""Steps that take far longer than the others: a median over all steps does not know them, the clock on the wall does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.launch.bubbles import frame_of
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.trace.intervals import clip
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["SlowSteps", "measure_slow_steps"]

# What grew by this share of the excess is its cause.
_NAMED_FROM = 0.5


@dataclass(frozen=True, eq=False)
class SlowSteps:
    """Slow steps among the steady ones.

    Attributes:
        row: rows of the step table.
        others: how many steady steps are not slow.
        slow_ns, typical_ns: median of the slow steps, and of the others.
        share: of the time of all steady steps, what the slow ones take.
        why: the class that holds most of what they take longer, "" on the CPU.
        name: what it passes in: a Python function, an operator, a kernel; "" where the trace does not show it.
        event: an event of that name, or -1.
    """

    row: np.ndarray
    others: int
    slow_ns: float
    typical_ns: float
    share: float
    why: str
    name: str
    event: int


def measure_slow_steps(facts: Core) -> SlowSteps | None:
    """Measure them; None where there are none."""
    slow = facts.slow
    if not slow.any():
        return None
    steady, period = facts.steps.steady, facts.steps.table["period"]
    rows, others = np.flatnonzero(slow), np.flatnonzero(steady & ~slow)
    excess = float(period[rows].mean() - period[others].mean())
    why = ""
    if facts.classes.device:
        longer = facts.classes.of_step[rows].mean(axis=0) - facts.classes.of_step[others].mean(axis=0)
        why = CLASSES[int(np.argmax(longer))]
    event = _gap_frame(facts, rows, excess) if why in {"", "host"} else -1
    if event < 0:
        event = _what_grew(facts, rows, others, excess, on_device=why in {"compute", "transfer", "communication"})
    return SlowSteps(
        row=rows,
        others=len(others),
        slow_ns=float(np.median(period[rows])),
        typical_ns=float(np.median(period[others])),
        share=float(period[rows].sum()) / max(1.0, float(period[steady].sum())),
        why=why,
        name=facts.trace.name_of(event) if event >= 0 else "",
        event=event,
    )


def _gap_frame(facts: Core, rows: np.ndarray, excess: float) -> int:
    """The Python function in which the longest gap of the slow steps passes, or -1."""
    classes = facts.classes
    if not classes.device:
        return -1
    longest = (0, 0)
    for row in rows.tolist():
        gaps = clip(classes.sets["host"], int(classes.window_start[row]), int(classes.window_end[row]))
        if len(gaps.start):
            at = int(np.argmax(gaps.end - gaps.start))
            longest = max(longest, (int(gaps.start[at]), int(gaps.end[at])), key=lambda gap: gap[1] - gap[0])
    if longest[1] - longest[0] < _NAMED_FROM * excess:
        return -1
    return frame_of(facts, *longest)


def _what_grew(facts: Core, rows: np.ndarray, others: np.ndarray, excess: float, *, on_device: bool) -> int:
    """The longest event of the name whose own time grew most, if it grew by half of the excess; -1 otherwise."""
    trace = facts.trace
    if on_device:
        events, time = trace.device_work, trace.duration
    else:
        events, time = trace.of(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.DRIVER), facts.host.self_time
        events = events[~np.isin(events, trace.steps.event)]
    step, name = trace.steps.of_event[events], trace.name[events]

    def mean(of: np.ndarray) -> np.ndarray:
        mine = np.isin(step, of)
        return np.bincount(name[mine], weights=time[events[mine]], minlength=len(trace.names)) / max(1, len(of))

    grew = mean(rows) - mean(others)
    most = int(np.argmax(grew)) if len(grew) else -1
    if most < 0 or grew[most] < _NAMED_FROM * excess:
        return -1
    mine = events[(name == most) & np.isin(step, rows)]
    return int(mine[np.argmax(time[mine])])
