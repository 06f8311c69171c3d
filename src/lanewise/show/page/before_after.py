"""The timelines of a step as it is without the profiler, and as predicted with a finding mended, for the page.

Made ahead of time for the findings that give most, each alone, and for all of them together. A row is a stretch of a lane;
stretches that a screen cannot tell apart are one, named after the longest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.diagnose.what_if.scenarios import Scenario, scenarios
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import FAMILIES, short_name
from lanewise.replay.graph import StepGraph
from lanewise.report.model import Report
from lanewise.show.page.packing import pack
from lanewise.show.report.json import to_plain
from lanewise.trace.schema import Kind

__all__ = ["before_after_block"]

_LANES = 8
_PIXELS = 900
_LONGEST_NAME = 200

# What a row is, besides a kernel of a family: behind the families.
_KINDS = ("host", "waits", "copy", "set")


def before_after_block(facts: Facts, report: Report) -> bytes:
    """The packed block; without scenarios where no finding would shorten the step."""
    found = scenarios(facts, report)
    if not found:
        return pack({}, extra={"scenarios": [], "names": [], "lanes": [], "kinds": []})
    plain = [{"code": one.code, "mended": one.mended, **to_plain(one.state)} for one in found]
    return _packed(facts, found, plain)


def _packed(facts: Facts, found: list[Scenario], plain: list[dict[str, Any]]) -> bytes:
    base = found[0].graph
    pixel = max(scenario.state.step_us * 1e3 for scenario in found) / _PIXELS
    changed = [_differs(base, scenario.graph) for scenario in found]
    # On the step as it is a bit for each scenario says which rows that one changes.
    bits = np.zeros(len(base), dtype=np.int64)
    for number, differs in enumerate(changed[1:]):
        bits |= differs.astype(np.int64) << number
    names = _Names(facts)
    lanes: dict[int, int] = _busiest(found)
    columns: dict[str, list[np.ndarray]] = {key: [] for key in ("lane", "start", "duration", "name", "kind", "mark")}
    for number, scenario in enumerate(found):
        table = scenario.table
        mark = bits if number == 0 else changed[number].astype(np.int64)
        rows = _rows(names, scenario, np.append(mark, 0)[np.minimum(table.node, len(base))], lanes, pixel)
        plain[number]["rows"] = len(rows["lane"])
        for key, value in rows.items():
            columns[key].append(value)
    return pack(
        {key: np.concatenate(parts) for key, parts in columns.items()},
        extra={
            "scenarios": plain,
            "names": [text[:_LONGEST_NAME] for text in names.texts],
            "lanes": [_lane_name(facts, base, lane) for lane in lanes],
            "lanesOmitted": sum(len(np.unique(s.table.lane)) for s in found[:1]) - len(lanes),
            "kinds": [*FAMILIES, *_KINDS],
        },
    )


def _differs(base: StepGraph, graph: StepGraph) -> np.ndarray:
    """Which nodes of the base a change touches: their work, what they wait for or where they run."""
    size = len(base)
    touched = (graph.duration[:size] != base.duration) | (graph.lane[:size] != base.lane)
    host = (graph.dependency[:size] != base.dependency) | (np.abs(graph.gap[:size] - base.gap) > 0.05 * base.gap)
    return touched | (host & base.on_host)


def _busiest(found: list[Scenario]) -> dict[int, int]:
    """The lanes that are shown -> their rows: host lines first, then streams, those that do most."""
    time: dict[int, float] = {}
    for scenario in found:
        for lane in np.unique(scenario.table.lane).tolist():
            mine = scenario.table.lane == lane
            time[lane] = max(time.get(lane, 0.0), float(scenario.table.duration[mine].sum()))
    kept = sorted(time, key=lambda lane: -time[lane])[:_LANES]
    return {lane: row for row, lane in enumerate(sorted(kept))}


def _lane_name(facts: Facts, base: StepGraph, lane: int) -> str:
    if lane < base.host_lines:
        return "host" if lane == 0 else f"host, thread {lane + 1}"
    streams = len(base.ready) - base.host_lines
    at = (lane - base.host_lines) % max(1, streams)
    nodes = np.flatnonzero(base.lane == base.host_lines + at)
    if len(nodes) == 0:
        return "a stream of its own"
    label = str(facts.trace["lanes"]["label"][facts.trace.lane[base.event[nodes[0]]]])[:60]
    return label if lane < len(base.ready) else f"{label}: in parallel"


class _Names:
    """Texts, each once, and what a row of each is."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.texts: list[str] = []
        self._place: dict[str, int] = {}

    def of(self, text: str) -> int:
        """The place of a text."""
        if text not in self._place:
            self._place[text] = len(self.texts)
            self.texts.append(text)
        return self._place[text]

    def of_rows(self, scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
        """Name and kind of each row of a timetable."""
        facts, trace, table = self._facts, self._facts.trace, scenario.table
        event = scenario.graph.event[table.node]
        host = scenario.graph.on_host[table.node]
        owner = np.where(event >= 0, facts.host.outermost_operator[np.maximum(event, 0)], -1)
        shown = np.where(host & ~table.waiting, owner, event)
        name_id = np.where(shown >= 0, trace.name[np.maximum(shown, 0)].astype(np.int64), -1)
        used, inverse = np.unique(np.where(host, name_id, -2 - name_id), return_inverse=True)
        place = [self.of(self._text(int(one))) for one in used]
        kind = np.full(len(event), len(FAMILIES))
        kind[table.waiting] += 1
        work = ~host
        family = facts.family_of_name[trace.name[np.maximum(event, 0)]].astype(np.int64)
        sort = trace.kind[np.maximum(event, 0)]
        kind = np.where(work, np.where(sort == Kind.KERNEL, family, len(FAMILIES) + 2 + (sort == Kind.MEMSET)), kind)
        return np.array(place, dtype=np.int64)[inverse], kind

    def _text(self, coded: int) -> str:
        if coded == -1:
            return "the program between operators"
        trace = self._facts.trace
        return trace.names[coded] if coded >= 0 else short_name(trace.names[-2 - coded])


def _rows(
    names: _Names, scenario: Scenario, mark: np.ndarray, lanes: dict[int, int], pixel: float
) -> dict[str, np.ndarray]:
    """Rows as they are drawn: those of one lane that begin in the same pixel are one."""
    table = scenario.table
    name, kind = names.of_rows(scenario)
    lane = np.array([lanes.get(int(one), -1) for one in table.lane], dtype=np.int64)
    keep = np.flatnonzero(lane >= 0)
    bins = (table.start[keep] / pixel).astype(np.int64)
    # Work and waits of the host are told apart.
    key = (lane[keep] * 2 + table.waiting[keep]) * (_PIXELS + 2) + bins
    order = keep[np.lexsort((-table.duration[keep], key))]
    sorted_key = np.sort(key)
    first = np.flatnonzero(np.diff(sorted_key, prepend=-1)) if len(key) else np.empty(0, np.int64)
    start = np.minimum.reduceat(table.start[order], first) if len(first) else np.empty(0)
    end = np.maximum.reduceat((table.start + table.duration)[order], first) if len(first) else np.empty(0)
    marks = np.bitwise_or.reduceat(mark[order], first) if len(first) else np.empty(0, np.int64)
    longest = order[first]
    return {
        "lane": lane[longest],
        "start": np.rint(start).astype(np.int64),
        "duration": np.maximum(np.rint(end - start), 1).astype(np.int64),
        "name": name[longest],
        "kind": kind[longest],
        "mark": marks,
    }
