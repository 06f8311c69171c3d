"""Where in the trace a finding is: one place per step, so that a timeline can go there."""

from __future__ import annotations

import numpy as np

from lanewise.diagnose.rule import Found
from lanewise.measure.facts import Facts
from lanewise.report.model import Place

__all__ = ["places_of"]

_MAX_PLACES = 32


def places_of(facts: Facts, outcome: Found, limit: int = _MAX_PLACES) -> list[Place]:
    """The places of a finding in time order: its events in each of its steps, or the steps where it names no events.

    Steady steps come before the others when there are more than `limit`.
    """
    steps = facts.trace.steps
    claimed = np.asarray(outcome.events, dtype=np.int64)
    if len(claimed) == 0:
        return _whole_steps(facts, outcome)[:limit]
    trace = facts.trace
    step = steps.of_event[claimed]
    places: list[Place] = []
    rows = np.unique(step)
    for row in rows[np.argsort(~facts.is_steady(rows), kind="stable")][:limit].tolist():
        events = claimed[step == row]
        longest = int(events[np.argmax(trace.duration[events])])
        places.append(
            Place(
                step=int(steps.number[row]) if row >= 0 and steps.recorded else -1,
                start_ns=int(trace.start[events].min()),
                end_ns=int(trace.end[events].max()),
                event=longest,
                events=len(events),
            )
        )
    return places


def _whole_steps(facts: Facts, outcome: Found) -> list[Place]:
    steps = facts.trace.steps
    if len(steps) == 0:
        return []
    rows = [int(row) for row in outcome.steps] or np.flatnonzero(facts.steps.steady).tolist()
    return [
        Place(
            step=int(steps.number[row]) if steps.recorded else -1,
            start_ns=int(steps.start[row]),
            end_ns=int(max(steps.end[row], facts.classes.window_end[row])),
            event=int(steps.event[row]),
            events=0,
        )
        for row in rows
    ]
