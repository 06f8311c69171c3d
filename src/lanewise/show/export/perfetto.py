"""The trace as JSON for the Perfetto UI, with tracks of our own: what the device does or waits for, steps, findings.

Written from the columns, row by row, so that a large trace needs no second copy in memory. Our tracks are in a process
named `lanewise`, above all others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.measure.regime.regime import REGIMES
from lanewise.measure.regime.time_classes import CLASSES
from lanewise.report.model import Report
from lanewise.show.page.series import memory_series, queue_series
from lanewise.show.page.slice_args import ARGUMENT_TABLES, arguments
from lanewise.show.page.timeline import cause_intervals
from lanewise.trace.schema import KINDS, Kind

__all__ = ["perfetto_json"]

_OWN = 1_000_000_000
_CAUSES, _STEPS, _FINDINGS = 1, 2, 3
_WORDS = {
    "compute": "computes",
    "transfer": "copies",
    "host": "waits for the host",
    "communication": "communicates",
    "dependency": "waits for other work",
    "unknown": "cannot be told",
}


def perfetto_json(facts: Facts, report: Report | None = None) -> Iterator[str]:
    """Pieces of one JSON document; joined they are the file."""
    # Marked as ours: it must not pass for a recording where it lies beside one.
    yield '{"schema":"lanewise.perfetto-export/1","displayTimeUnit":"ns","traceEvents":[\n'
    first = True
    for row in _rows(facts, report):
        yield ("" if first else ",\n") + json.dumps(row, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        first = False
    yield "\n]}\n"


def _rows(facts: Facts, report: Report | None) -> Iterator[dict[str, Any]]:
    yield from _own_tracks(facts, report)
    yield from _lanes(facts)
    yield from _slices(facts)
    yield from _flows(facts)
    yield from _curves(facts)


def _own_tracks(facts: Facts, report: Report | None) -> Iterator[dict[str, Any]]:
    yield _meta("process_name", _OWN, 0, name="lanewise")
    yield {"ph": "M", "name": "process_sort_index", "pid": _OWN, "tid": 0, "args": {"sort_index": -1}}
    device = facts.classes.device
    if device:
        yield _meta("thread_name", _OWN, _CAUSES, name=f"what GPU {device} does")
        for start, duration, cause in zip(*(column.tolist() for column in cause_intervals(facts)), strict=True):
            name = CLASSES[cause]
            yield _slice(_OWN, _CAUSES, _WORDS[name], "lanewise", start, duration, {"class": name})
    steps = facts.trace.steps
    if steps.recorded:
        yield _meta("thread_name", _OWN, _STEPS, name="steps, and what binds them")
        for row, number in enumerate(steps.number.tolist()):
            regime = REGIMES[facts.regime.per_step[row]][1]
            start, end = int(facts.classes.window_start[row]), int(facts.classes.window_end[row])
            yield _slice(
                _OWN,
                _STEPS,
                f"#{number} {regime}",
                "lanewise",
                start,
                end - start,
                {"steady": bool(facts.steps.steady[row])},
            )
    for index, finding in enumerate(report.findings if report else ()):
        yield _meta("thread_name", _OWN, _FINDINGS + index, name=f"{finding.code} {finding.name}")
        for place in finding.places:
            yield _slice(
                _OWN,
                _FINDINGS + index,
                finding.code,
                "lanewise",
                place.start_ns,
                place.end_ns - place.start_ns,
                {"finding": finding.title, "fix": finding.fix},
            )


def _ids(facts: Facts) -> list[tuple[int, int]]:
    """Process and thread numbers of every lane: made up, because recorded ones may be text, and may collide."""
    table = facts.trace["lanes"]
    processes: dict[tuple[str, str], int] = {}
    return [
        (processes.setdefault((side, process), len(processes) + 1), row + 1)
        for row, (side, process) in enumerate(zip(table["side"].tolist(), table["process"].tolist(), strict=True))
    ]


def _lanes(facts: Facts) -> Iterator[dict[str, Any]]:
    table = facts.trace["lanes"]
    named: set[int] = set()
    for (pid, tid), side, process, label in zip(
        _ids(facts), table["side"].tolist(), table["process"].tolist(), table["label"].tolist(), strict=True
    ):
        if pid not in named:
            named.add(pid)
            words = {"device": f"GPU {process}", "host": f"host, process {process}"}.get(side, f"elsewhere {process}")
            yield _meta("process_name", pid, 0, name=words)
        yield _meta("thread_name", pid, tid, name=label)


def _slices(facts: Facts) -> Iterator[dict[str, Any]]:
    trace = facts.trace
    ids = _ids(facts)
    args = _argument_rows(facts)
    for event, (lane, kind, name, start, duration) in enumerate(
        zip(
            trace.lane.tolist(),
            trace.kind.tolist(),
            trace.name.tolist(),
            trace.start.tolist(),
            trace.duration.tolist(),
            strict=True,
        )
    ):
        if kind != Kind.COUNTER:
            pid, tid = ids[lane]
            yield _slice(pid, tid, trace.names[int(name)], KINDS[kind], start, duration, args.get(event))


def _argument_rows(facts: Facts) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for table in ARGUMENT_TABLES:
        rows = arguments(facts.trace, table)
        shared = [
            {name: value for name, value in zip(rows.columns, values, strict=True) if value is not None}
            for values in rows.rows
        ]
        found |= {
            event: shared[row] for event, row in zip(rows.event.tolist(), rows.row.tolist(), strict=True) if row >= 0
        }
    return found


def _flows(facts: Facts) -> Iterator[dict[str, Any]]:
    """An arrow from each launch to its work; it binds to the slices that hold its ends."""
    trace = facts.trace
    ids = _ids(facts)
    linked = np.flatnonzero(trace.links.launch >= 0)
    for number, (call, work) in enumerate(
        zip(trace.links.launch[linked].tolist(), trace.device_work[linked].tolist(), strict=True)
    ):
        for phase, event in (("s", call), ("f", work)):
            pid, tid = ids[int(trace.lane[event])]
            yield {
                "ph": phase,
                "id": number,
                "name": "launch",
                "cat": "launch",
                "pid": pid,
                "tid": tid,
                "bp": "e",
                "ts": int(trace.start[event]) / 1e3,
            }


def _curves(facts: Facts) -> Iterator[dict[str, Any]]:
    for series in (*queue_series(facts), *memory_series(facts.trace)):
        for time, value in zip(series.time.tolist(), series.value.tolist(), strict=True):
            yield {"ph": "C", "name": series.label, "pid": _OWN, "tid": 0, "ts": time / 1e3, "args": {"value": value}}


def _slice(
    pid: int, tid: int, name: str, category: str, start: int, duration: int, args: dict[str, Any] | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": start / 1e3,
        "dur": duration / 1e3,
    }
    if args:
        row["args"] = args
    return row


def _meta(what: str, pid: int, tid: int, *, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
