"""Questions that a page asks a server about a trace too large to send: the slices of a window, one slice, a stretch.

The answers have the shape that the page computes itself for a small trace (web/src/timeline/details.ts).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.show.page.packing import pack
from lanewise.show.page.payload import cut, families_of, marked_slices, names_block, overview_columns
from lanewise.show.page.series import IN_A_FILE, THINNED, Series, all_series, within
from lanewise.show.page.slice_args import ARGUMENT_TABLES, arguments
from lanewise.show.page.timeline import timeline_of
from lanewise.trace.groups import distinct
from lanewise.trace.intervals import clip
from lanewise.trace.schema import TABLES, Kind

__all__ = ["Windows"]

_MOST_SLICES = 2_000_000
_DEVICE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


class Windows:
    """A whole timeline, kept for as long as a server runs."""

    def __init__(self, facts: Facts) -> None:
        trace = facts.trace
        self._facts = facts
        self._timeline = timeline_of(facts, max_slices=max(1, len(trace)))
        event = self._timeline.event
        names = trace.name[event]
        self._used = distinct(names, len(trace.names))
        code = np.zeros(len(trace.names), dtype=np.int64)
        code[self._used] = np.arange(len(self._used))
        self._code = code[names]
        self._start, self._duration, self._kind = trace.start[event], trace.duration[event], trace.kind[event]
        self._row = np.repeat(np.arange(len(self._timeline.row_first)), self._timeline.row_count)
        low = int(self._start.min()) if len(event) else 0
        self._low, self._span = low, (int(self._start.max()) - low + 2 if len(event) else 1)
        # One number line for all rows, so that one search finds the window's bounds in every row.
        self._key = self._row * self._span + (self._start - low)
        self._lower = [trace.names[int(row)].lower() for row in self._used]
        self._waiting = facts.host.waiting

    def overview(self) -> bytes:
        """Rows, steps, causes, curves and names: what every window needs, without slices."""
        columns, extra = overview_columns(self._facts, self._timeline, points=THINNED)
        for series in extra["series"]:
            series["points"] = series["total"]  # the windows have what is not here
        columns["name_family"] = families_of(self._facts, self._used)
        extra |= {"names": names_block(self._facts, self._used), "omitted": {}, "total": len(self._start)}
        empty = np.empty(0, dtype=np.int64)
        columns["row_first"], columns["row_count"] = columns["row_first"] * 0, columns["row_count"] * 0
        columns |= dict.fromkeys(("start", "duration", "name", "kind"), empty)
        times = [name for name in columns if name.startswith("time:")]
        return pack(columns, delta=["cause_start", *times], extra=extra, level=1)

    @cached_property
    def _curves(self) -> list[Series]:
        """The curves that the overview has not whole."""
        series, _ = all_series(self._facts, IN_A_FILE)
        return [one for one in series if one.total > THINNED]

    def slices(self, low: int, high: int, pixel: float) -> bytes:
        """Slices between two times. Where several begin within `pixel` ns and all are shorter, the longest stands for
        them: `merged` says for how many, its duration is what they cover together. Curves that the overview has thinned
        come with them, as exact as a pixel can show."""
        position, duration, merged = self._window(low, high, max(1.0, pixel))
        while len(position) > _MOST_SLICES:
            pixel = max(1.0, pixel) * 4
            position, duration, merged = self._window(low, high, pixel)
        row = self._row[position]
        count = np.bincount(row, minlength=len(self._timeline.row_first))
        event = self._timeline.event[position]
        columns = {
            "row_first": np.concatenate(([0], np.cumsum(count)[:-1])) if len(count) else count,
            "row_count": count,
            "row_lane": self._timeline.row_lane,
            "row_depth": self._timeline.row_depth,
            "start": self._start[position],
            "duration": duration,
            "name": self._code[position],
            "kind": self._kind[position],
            "id": event,
            "merged": merged,
            "waiting": np.flatnonzero(self._waiting[event]),
        }
        times: list[str] = []
        for curve in self._curves:
            time, value = within(curve, low, high, pixel)
            times.append(f"time:{curve.key}")
            columns |= {times[-1]: time, f"value:{curve.key}": value}
        return pack(columns, delta=["start", "row_first", "waiting", *times], extra={}, level=1)

    def _window(self, low: int, high: int, pixel: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.arange(len(self._timeline.row_first), dtype=np.int64)
        ends = self._timeline.row_first + self._timeline.row_count
        begin = np.clip(low - self._low, 0, self._span - 1)
        until = np.clip(high - self._low, 0, self._span - 1)
        first = np.searchsorted(self._key, rows * self._span + begin, side="left")
        # One slice earlier may still be open when the window begins.
        first = np.maximum(first - 1, self._timeline.row_first)
        last = np.minimum(np.searchsorted(self._key, rows * self._span + until, side="right"), ends)
        count = np.maximum(last - first, 0)
        position = np.repeat(first - np.concatenate(([0], np.cumsum(count)[:-1])), count) + np.arange(count.sum())
        duration = self._duration[position]
        merged = np.ones(len(position), dtype=np.int64)
        narrow = np.flatnonzero(duration < pixel)
        if len(narrow) == 0:
            return position, duration, merged
        at = position[narrow]
        bucket = ((self._start[at] - self._low) / pixel).astype(np.int64)
        bucket += self._row[at] * (int(self._span / pixel) + 2)
        # A longer slice between two short ones keeps them apart: the order of starts must not change.
        broken = np.concatenate(([True], (bucket[1:] != bucket[:-1]) | (np.diff(narrow) != 1)))
        group = np.flatnonzero(broken)
        size = np.diff(np.concatenate((group, [len(narrow)])))
        together = np.add.reduceat(duration[narrow], group)
        longest = np.maximum.reduceat(duration[narrow], group)
        is_longest = np.flatnonzero(duration[narrow] == np.repeat(longest, size))
        owner = np.repeat(np.arange(len(group)), size)[is_longest]
        chosen = narrow[is_longest[np.searchsorted(owner, np.arange(len(group)))]]
        keep = np.ones(len(position), dtype=bool)
        keep[narrow] = False
        keep[chosen] = True
        duration = duration.copy()
        duration[chosen] = np.where(size > 1, np.minimum(together, int(pixel)), duration[chosen])
        merged[chosen] = size
        return position[keep], duration[keep], merged[keep]

    def marked(self, events: np.ndarray) -> bytes:
        """Where the events of a finding are, by row and start."""
        position, total = marked_slices(self._facts, self._timeline, events)
        columns = {"row": self._row[position], "start": self._start[position], "duration": self._duration[position]}
        return pack(columns, delta=["row", "start"], extra={"total": total}, level=1)

    def details(self, event: int) -> dict[str, Any] | None:
        """Everything about one event; None for one that is not drawn."""
        trace = self._facts.trace
        if not 0 <= event < len(trace) or self._timeline.position[event] < 0:
            return None
        device = trace.kind[event] in _DEVICE
        launch, launched, total = -1, np.empty(0, np.int64), 0
        if device:
            launch = int(trace.links.launch[np.searchsorted(trace.device_work, event)])
        else:
            launched = self._launched_by(event)
            total = len(launched)
        forward = int(trace.links.forward_of[event])
        backward = np.flatnonzero(trace.links.forward_of == event)[:20]
        inner = int(trace.duration[event])
        children = np.flatnonzero(trace.nesting.parent == event)
        return {
            "slice": self._ref(event),
            "self": max(0, inner - int(trace.duration[children].sum())),
            "waits": bool(self._waiting[event]),
            "args": self._args(event),
            "ancestors": [self._ref(at) for at in self._around(launch if launch >= 0 else event)],
            "launch": self._ref(launch) if launch >= 0 else None,
            "launched": [self._ref(at) for at in launched[:200].tolist()],
            "launchedTotal": total,
            "forward": self._ref(forward) if forward >= 0 else None,
            "backward": [self._ref(at) for at in backward.tolist()],
        }

    def _ref(self, event: int) -> dict[str, Any]:
        trace = self._facts.trace
        position = int(self._timeline.position[event])
        name = cut(trace.name_of(event))
        work = trace.kind[event] in _DEVICE
        return {
            "id": event,
            "row": int(self._row[position]),
            "start": int(trace.start[event]),
            "duration": int(trace.duration[event]),
            "name": name,
            "short": short_name(name) if work else name,
            "kind": int(trace.kind[event]),
        }

    def _around(self, event: int) -> list[int]:
        parent, chain = self._facts.trace.nesting.parent, list[int]()
        at = int(parent[event])
        while at >= 0 and len(chain) < 400:
            if self._timeline.position[at] >= 0:
                chain.append(at)
            at = int(parent[at])
        return chain[::-1]

    def _launched_by(self, event: int) -> np.ndarray:
        trace = self._facts.trace
        launch = trace.links.launch
        call = np.maximum(launch, 0)
        start = trace.start[call]
        inside = (launch >= 0) & (trace.lane[call] == trace.lane[event]) & (start >= trace.start[event])
        return trace.device_work[inside & (start < max(trace.end[event], trace.start[event] + 1))]

    def _args(self, event: int) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = []
        for table, names in ARGUMENT_TABLES.items():
            row = int(self._facts.trace.lookup(table, np.array([event]))[0])
            if row < 0:
                continue
            found = arguments(self._facts.trace, table, rows=np.array([row]))
            for name, value in zip(names, found.rows[0], strict=True):
                if value is not None:
                    column = TABLES[table][name]
                    result.append(
                        {
                            "name": name.removesuffix("_text"),
                            "value": value,
                            "unit": column.unit,
                            "meaning": column.meaning,
                        }
                    )
        return result

    def measure(self, low: int, high: int, limit: int = 8) -> dict[str, Any]:
        """What a stretch of time holds."""
        facts, trace = self._facts, self._facts.trace
        classes = {name: clip(facts.classes.sets[name], low, high).total for name in CLASSES}
        inside = np.minimum(trace.end, high) - np.maximum(trace.start, low)
        work = trace.device_work[inside[trace.device_work] > 0]
        operators = trace.of(Kind.OPERATOR)
        operators = operators[inside[operators] > 0]
        calls = distinct(trace.links.launch[trace.links.launch >= 0], len(trace))
        launches = np.count_nonzero((trace.start[calls] >= low) & (trace.start[calls] < high))
        return {
            "from": low,
            "to": high,
            "classes": {name: time for name, time in classes.items() if time},
            "deviceSlices": len(work),
            "launches": int(launches),
            "kernels": self._top(work, inside, limit),
            "operators": self._top(operators, inside, limit),
        }

    def _top(self, events: np.ndarray, inside: np.ndarray, limit: int) -> list[dict[str, Any]]:
        trace = self._facts.trace
        names = trace.name[events].astype(np.int64)
        time = np.bincount(names, weights=inside[events], minlength=1)
        count = np.bincount(names, minlength=1)
        best = np.argsort(-time, kind="stable")[:limit]
        return [
            {"name": short_name(cut(trace.names[int(name)])), "count": int(count[name]), "time": float(time[name])}
            for name in best.tolist()
            if time[name] > 0
        ]

    def search(self, text: str, limit: int = 2_000) -> dict[str, Any]:
        """Slices whose name contains a text, regardless of case, in drawing order."""
        needle = text.lower()
        match = np.array([needle in name for name in self._lower], dtype=bool)
        position = np.flatnonzero(match[self._code]) if len(match) else np.empty(0, np.int64)
        events = self._timeline.event[position[:limit]]
        return {"slices": [self._ref(event) for event in events.tolist()], "total": len(position)}
