"""What the records of the first step show about why it took longer than the others.

Only records count: a late first launch is a symptom, and "workspace allocation" without an allocation call a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.trace.intervals import Union, covered, union
from lanewise.trace.schema import Kind

__all__ = ["LOADING_ROWS", "Cause", "causes_in_first_step", "overhead_rows"]

LOADING_ROWS = ("Lazy Function Loading", "Runtime Triggered Module Loading")


@dataclass(frozen=True)
class Cause:
    """One cause.

    Attributes:
        label: what happened.
        in_first_ns: time of its records inside the first step's host window; ns.
        in_others_ns: median over the other steps; ns.
        rows: records that touch the first step.
        fix: advice if it differs from the general one, "" otherwise.
    """

    label: str
    in_first_ns: int
    in_others_ns: int
    rows: int
    fix: str = ""

    @property
    def excess_ns(self) -> int:
        """How much more of it the first step holds."""
        return self.in_first_ns - self.in_others_ns


def overhead_rows(facts: Core, *names: str) -> np.ndarray:
    """The profiler's and the driver's own rows (trace-format 9.10) of the given names."""
    rows = facts.trace.of(Kind.OVERHEAD)
    return rows[np.isin(facts.trace.name[rows], facts.trace.name_ids(*names))] if len(rows) else rows


@remembered
def causes_in_first_step(facts: Core) -> list[Cause]:
    """Causes that a record shows, the one with the largest excess first."""
    trace = facts.trace
    stalls = facts.classes.stalls
    loading = overhead_rows(facts, *LOADING_ROWS)
    compiler = overhead_rows(facts, "Driver Compiler")
    memory = trace.links.calls("allocate", "free")
    compiling = facts.compile_rows
    candidates = [
        _cause(
            facts,
            "the profiler's request for an event buffer",
            stalls,
            "Record with a warm-up phase and more steps; this time is the profiler's, not the program's.",
        ),
        _cause(facts, "loading kernels and modules", _span(facts, loading)),
        _cause(facts, "the driver's compiler", _span(facts, compiler)),
        _cause(facts, "allocating device memory", _span(facts, memory)),
        _cause(
            facts,
            "compiling",
            _span(facts, compiling),
            "Let warm-up steps compile: raise the schedule's `warmup` until no compile row is left in the recording.",
        ),
    ]
    return sorted((c for c in candidates if c.excess_ns > 0), key=lambda cause: -cause.excess_ns)


def _span(facts: Core, events: np.ndarray) -> Union:
    return union(facts.trace.start[events], facts.trace.end[events])


def _cause(facts: Core, label: str, rows: Union, fix: str = "") -> Cause:
    steps = facts.trace.steps
    inside = covered(rows, steps.start, steps.end)
    if len(inside) == 0:
        return Cause(label, 0, 0, 0, fix)
    touching = int(np.count_nonzero((rows.start < steps.end[0]) & (rows.end > steps.start[0])))
    others = int(np.median(inside[1:])) if len(inside) > 1 else 0
    return Cause(label, int(inside[0]), others, touching, fix)
