"""Compilation inside the recording: which rows, how much time of each step, of which frame."""

from __future__ import annotations

import re

import numpy as np

from lanewise.measure.core import Core, remembered
from lanewise.trace.groups import mask_of
from lanewise.trace.intervals import covered, union
from lanewise.trace.nesting import nearest

__all__ = ["compile_ids", "compile_time_of_step", "inside_compilation", "outer_compile_rows"]

_ID = re.compile(r"compile_id=(\d+)/(\d+)")


@remembered
def outer_compile_rows(facts: Core) -> np.ndarray:
    """Compile rows with no compile row around them."""
    rows = facts.compile_rows
    return rows[~inside_compilation(facts, rows)]


def inside_compilation(facts: Core, events: np.ndarray) -> np.ndarray:
    """Whether each event is the compiler's own doing (kernels that it tries out, say), not the program's."""
    rows = facts.compile_rows
    if len(rows) == 0:
        return np.zeros(len(events), dtype=bool)
    compiling = mask_of(len(facts.trace), rows)
    return nearest(facts.host.parent, compiling, events) >= 0


@remembered
def compile_time_of_step(facts: Core) -> np.ndarray:
    """Time of each step in which some thread compiles; ns, shape (steps,)."""
    trace, steps = facts.trace, facts.trace.steps
    rows = outer_compile_rows(facts)
    return covered(union(trace.start[rows], trace.end[rows]), steps.start, steps.end)


def compile_ids(facts: Core) -> list[tuple[int, int, int]]:
    """(step, frame K, recompile index M) of every compilation that names its id, in time order; step -1 outside."""
    trace = facts.trace
    named = {int(i): (int(m[1]), int(m[2])) for i, name in enumerate(trace.names) if (m := _ID.search(name))}
    if not named:
        return []
    rows = facts.compile_rows
    rows = rows[np.isin(trace.name[rows], np.fromiter(named, np.int64))]
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    found = zip(trace.steps.of_event[rows].tolist(), trace.name[rows].tolist(), strict=True)
    return list(dict.fromkeys((step, *named[name]) for step, name in found))
