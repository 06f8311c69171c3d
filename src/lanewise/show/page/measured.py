"""What a page draws of the measures: overlap on the device, the critical path of a step, who holds the memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.measure.regime.critical_path import KINDS, CriticalPath
from lanewise.show.report.json import to_plain
from lanewise.show.report.tables import cut_tables, measure_section

__all__ = ["measured", "runs_of"]

_ROWS = 200
_PIXELS = 900
_HOST, _LAUNCH = KINDS.index("host"), KINDS.index("launch")


def measured(facts: Facts) -> dict[str, Any]:
    """By measure its sentences and tables, and what its picture is drawn from; only the measures that the trace has."""
    found = {name: section for name in ("overlap", "critical-path", "memory") if (section := _section(facts, name))}
    if "overlap" in found:
        overlap = facts.overlap
        found["overlap"]["beside"] = {
            "transfer": [overlap.copies.total, overlap.copies_hidden],
            "communication": [overlap.communication.total, overlap.communication_hidden],
        }
    if "critical-path" in found:
        path = facts.critical_path()
        found["critical-path"]["path"] = {"start": path.start, "kinds": KINDS, "runs": runs_of(path)}
    return found


def _section(facts: Facts, name: str) -> dict[str, Any] | None:
    section = measure_section(facts, name)
    if not section.tables:
        return None
    return {
        "statements": [to_plain(statement) for statement in section.statements],
        "tables": {key: to_plain(block) for key, block in cut_tables(section.tables, limit=_ROWS).items()},
    }


def runs_of(path: CriticalPath) -> list[list[int]]:
    """The path as a screen can show it: `[start, end, row of KINDS]` in ns from its start, of each pixel the kind that it
    waits for most; launch calls belong to the host's work around them."""
    length = path.end - path.start
    if length <= 0 or not path.segments:
        return []
    edges = np.linspace(0, length, min(_PIXELS, length) + 1)
    bounds = np.array([0, *(part.end - path.start for part in path.segments)], dtype=np.float64)
    kind = np.array([KINDS.index(part.kind) for part in path.segments])
    kind[kind == _LAUNCH] = _HOST
    lengths = np.diff(bounds)
    time = np.array(
        [
            np.diff(np.interp(edges, bounds, np.concatenate(([0.0], np.cumsum(np.where(kind == row, lengths, 0.0))))))
            for row in range(len(KINDS))
        ]
    )
    shown = time.argmax(axis=0)
    first = np.flatnonzero(np.diff(shown, prepend=-1))
    at = np.rint(edges[np.append(first, len(shown))]).astype(np.int64).tolist()
    return [[begin, end, int(kind)] for begin, end, kind in zip(at, at[1:], shown[first], strict=False)]
