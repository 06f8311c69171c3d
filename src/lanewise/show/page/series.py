"""Values over time that a timeline draws as curves: memory, queue depth, counters; thinned without losing a peak."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lanewise.measure.facts import Facts
from lanewise.trace.model import Trace

__all__ = [
    "IN_A_FILE",
    "THINNED",
    "Series",
    "all_series",
    "counter_series",
    "memory_series",
    "plain",
    "queue_series",
    "thin",
    "within",
]

THINNED = 20_000
"""Points of a curve that is drawn from afar; a server has the rest."""
IN_A_FILE = 1_000_000
"""Points of a curve in a page that no server stands behind: all of them, but for the largest traces."""
_MAX_SERIES = 64


class Series(NamedTuple):
    """A step curve: `value[i]` holds from `time[i]` on. `type` is a quantity type; `total` counts unthinned points."""

    key: str
    label: str
    type: str
    time: np.ndarray
    value: np.ndarray
    total: int


def thin(time: np.ndarray, value: np.ndarray, limit: int = THINNED) -> tuple[np.ndarray, np.ndarray]:
    """At most about `limit` points: of each bucket of consecutive points its lowest, its highest and its last one."""
    count = len(time)
    if count <= limit:
        return time, value
    buckets = max(1, limit // 3)
    edge = np.linspace(0, count, buckets + 1).astype(np.int64)[:-1]
    bucket = np.repeat(np.arange(buckets), np.diff(np.concatenate((edge, [count]))))
    by_value = np.lexsort((value, bucket))
    ends = np.concatenate((edge[1:], [count])) - 1
    keep = np.unique(np.concatenate((by_value[edge], by_value[ends], ends)))
    return time[keep], value[keep]


def within(series: Series, low: int, high: int, pixel: float) -> tuple[np.ndarray, np.ndarray]:
    """The points of a curve between two times, ns, and the one before: all, or of those that share `pixel` ns the highest
    and the last, so that no pixel shows anything else than with all."""
    first = max(0, int(np.searchsorted(series.time, low, side="right")) - 1)
    last = int(np.searchsorted(series.time, high, side="left"))
    time, value = series.time[first:last], series.value[first:last]
    if len(time) < 2:
        return time, value
    bucket = ((time - time[0]) / max(pixel, 1.0)).astype(np.int64)
    ends = np.flatnonzero(np.concatenate((np.diff(bucket) != 0, [True])))
    by_value = np.lexsort((value, bucket))
    keep = np.unique(np.concatenate(([0], by_value[ends], ends)))
    return time[keep], value[keep]


def all_series(facts: Facts, limit: int) -> tuple[list[Series], int]:
    """Every curve of a timeline with at most about `limit` points each, and how many counters were left out."""
    counters, omitted = counter_series(facts.trace, limit)
    return [*queue_series(facts, limit), *memory_series(facts.trace, limit), *counters], omitted


def _series(key: str, label: str, type_: str, time: np.ndarray, value: np.ndarray, limit: int) -> Series:
    order = np.argsort(time, kind="stable")
    thinned = thin(time[order], value[order], limit)
    return Series(key, label, type_, thinned[0], thinned[1], len(time))


def memory_series(trace: Trace, limit: int = THINNED) -> list[Series]:
    """Allocated and reserved bytes per device."""
    table = trace["memory"]
    result: list[Series] = []
    for device in np.unique(table["device_id"]).tolist() if len(table["time"]) else []:
        rows = table["device_id"] == device
        place = "CPU" if device < 0 else f"GPU {device}"
        for column, label in (("allocated", "memory allocated"), ("reserved", "memory reserved")):
            known = rows & (table[column] >= 0)
            # Nothing is reserved on the host: a curve of zeros says nothing.
            if table[column][known].any():
                result.append(
                    _series(
                        f"{column}:{device}",
                        f"{place} {label}",
                        "bytes",
                        table["time"][known],
                        table[column][known],
                        limit,
                    )
                )
    return result[:_MAX_SERIES]


def queue_series(facts: Facts, limit: int = THINNED) -> list[Series]:
    """Device work that is launched and has not started: near 0 where the host cannot keep ahead."""
    trace = facts.trace
    linked = trace.links.launch >= 0
    if not linked.any():
        return []
    launched = trace.start[trace.links.launch[linked]]
    started = np.maximum(trace.start[trace.device_work[linked]], launched)
    time = np.concatenate((launched, started))
    change = np.concatenate((np.ones(len(launched), np.int64), np.full(len(started), -1, np.int64)))
    order = np.lexsort((-change, time))
    return [_series("queue", "launched and waiting", "count", time[order], np.cumsum(change[order]), limit)]


def counter_series(trace: Trace, limit: int = THINNED) -> tuple[list[Series], int]:
    """Counters that the file holds, and how many series were left out."""
    table = trace["counters"]
    if len(table["time"]) == 0:
        return [], 0
    key = table["name"].astype(np.int64) * len(trace.texts) + table["key_text"]
    keys = np.unique(key)
    result: list[Series] = []
    for value in keys[:_MAX_SERIES].tolist():
        rows = np.flatnonzero((key == value) & np.isfinite(table["value"]))
        name, text = trace.names[int(table["name"][rows[0]])] if len(rows) else "", ""
        if len(rows) == 0:
            continue
        text = trace.texts[int(table["key_text"][rows[0]])]
        label = f"{name} {text}".strip()[:200]
        result.append(_series(f"counter:{value}", label, "number", table["time"][rows], table["value"][rows], limit))
    return result, max(0, len(keys) - _MAX_SERIES)


def plain(series: Series) -> dict[str, Any]:
    """What a page needs to know about a series besides its points."""
    return {
        "key": series.key,
        "label": series.label,
        "type": series.type,
        "points": len(series.time),
        "total": series.total,
    }
