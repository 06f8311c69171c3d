"""The profiler table, right: operators, kernels, API calls and copies, each with count, total and spread.

Device totals come from kernels, copies and sets only. torch's own table also counts the projection of an annotation on
the device lane and work of unrecorded steps; neither is repeated here.
"""

from __future__ import annotations

import numpy as np

from lanewise.measure.columns import Columns, group_statistics, sums
from lanewise.measure.host import Host
from lanewise.measure.kernel_names import FAMILIES
from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind

__all__ = ["api_table", "copy_table", "kernel_table", "operator_table"]

_STEP_NAME = "ProfilerStep#"


def operator_table(trace: Trace, host: Host) -> Columns:
    """Operators and annotations by name.

    Columns: `name, kind, count, host_total, host_self, host_waiting, device_total, device_self, mean, median, min, max,
    stddev` (of the host duration); ns. `host_self` leaves out the children; `host_waiting` is the part of `host_total`
    spent blocked on the device; `device_self` is the work launched by the operator itself, `device_total` by anything
    inside it. Steps of the profiler's schedule are one row, `ProfilerStep#*`.
    """
    events = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    key, labels = _merged_names(trace, events)
    launch = trace.links.launch
    linked = launch >= 0
    device_self = sums(launch[linked], trace.duration[trace.device_work[linked]], len(trace))
    device_total = host.accumulate(device_self)
    # Work is the operator's own if no operator or annotation lies between it and the launch.
    calls = np.unique(launch[linked])
    holder = host.parent[calls]
    climb = (holder >= 0) & np.isin(trace.kind[np.maximum(holder, 0)], (Kind.RUNTIME, Kind.DRIVER))
    while climb.any():
        holder[climb] = host.parent[holder[climb]]
        climb = (holder >= 0) & np.isin(trace.kind[np.maximum(holder, 0)], (Kind.RUNTIME, Kind.DRIVER))
    own = sums(holder[holder >= 0], device_self[calls[holder >= 0]], len(trace))

    stats = group_statistics(key, trace.duration[events])
    row, count = np.searchsorted(stats["key"], key), stats.height
    # Totals count a recursive call once: an event directly below one of its own name is left out.
    row_of_event = np.full(len(trace), -1, dtype=np.int64)
    row_of_event[events] = row
    parent = host.parent[events]
    outermost = (parent < 0) | (row_of_event[np.maximum(parent, 0)] != row)
    outer, outer_row = events[outermost], row[outermost]
    rows = {
        "name": labels[stats["key"]],
        "kind": np.where(_kind_by_row(row, trace.kind[events], count) == Kind.OPERATOR, "operator", "annotation"),
        "count": stats["count"],
        "host_total": sums(outer_row, trace.duration[outer], count),
        "host_self": sums(row, host.self_time[events], count),
        "host_waiting": sums(outer_row, host.wait_inside[outer], count),
        "device_total": sums(outer_row, device_total[outer], count),
        "device_self": sums(row, own[events], count),
    }
    for name in ("mean", "median", "min", "max", "stddev"):
        rows[name] = stats[name]
    return Columns(rows).sorted_by("host_self")


def kernel_table(trace: Trace, family_of_name: np.ndarray) -> Columns:
    """Kernels by name: `name, family, count, total, share, mean, median, min, max, stddev`; ns, share of kernel time."""
    events = trace.of(Kind.KERNEL)
    stats = group_statistics(trace.name[events].astype(np.int64), trace.duration[events])
    total = max(1, int(stats["total"].sum()))
    families = np.array(FAMILIES, dtype=object)
    return Columns(
        {
            "name": _labels(trace)[stats["key"].astype(np.int64)],
            "family": families[family_of_name[stats["key"].astype(np.int64)]],
            "count": stats["count"],
            "total": stats["total"],
            "share": stats["total"] / total,
            **{name: stats[name] for name in ("mean", "median", "min", "max", "stddev")},
        }
    ).sorted_by("total")


def api_table(trace: Trace, host: Host) -> Columns:
    """API calls by name: `name, side, role, count, total, self, waiting, mean, median, min, max, stddev`; ns.

    A driver call inside a runtime call is in both rows' `total` but only in the driver row's `self`: add up `self`.
    """
    events = trace.api_calls
    key = trace.name[events].astype(np.int64)
    stats = group_statistics(key, trace.duration[events])
    row, count = np.searchsorted(stats["key"], key), stats.height
    waiting = np.where(host.waiting, trace.duration, 0)
    return Columns(
        {
            "name": _labels(trace)[stats["key"]],
            "side": np.where(_kind_by_row(row, trace.kind[events], count) == Kind.DRIVER, "driver", "runtime"),
            "role": trace.links.role_of_name[stats["key"]] if len(stats["key"]) else np.empty(0, object),
            "count": stats["count"],
            "total": stats["total"],
            "self": sums(row, host.self_time[events], count),
            "waiting": sums(row, waiting[events], count),
            **{name: stats[name] for name in ("mean", "median", "min", "max", "stddev")},
        }
    ).sorted_by("total")


def copy_table(trace: Trace) -> Columns:
    """Copies and sets by name: `name, direction, count, total, bytes, bandwidth, call_time, mean, ...`; ns, bytes, GB/s.

    `bandwidth` is payload over device time; `call_time` is what the calls that started them took on the host.
    """
    events = trace.of(Kind.MEMCPY, Kind.MEMSET)
    key = trace.name[events].astype(np.int64)
    stats = group_statistics(key, trace.duration[events])
    rows = trace.lookup("copy_args", events)
    args = trace["copy_args"]
    payload = (
        np.where(rows >= 0, args["bytes"][np.maximum(rows, 0)], -1) if len(args["event"]) else np.full(len(rows), -1)
    )
    direction = args["direction"][np.maximum(rows, 0)] if len(args["event"]) else np.full(len(rows), "?")
    launch = trace.links.launch_of(events)
    call_time = np.where(launch >= 0, trace.duration[np.maximum(launch, 0)], 0)
    row, count = np.searchsorted(stats["key"], key), stats.height
    moved = sums(row, np.maximum(payload, 0), count)
    with np.errstate(divide="ignore", invalid="ignore"):
        bandwidth = np.where(stats["total"] > 0, moved / stats["total"], np.nan)
    order = np.argsort(key, kind="stable")
    first = order[np.searchsorted(key[order], stats["key"])]
    return Columns(
        {
            "name": _labels(trace)[stats["key"]],
            "direction": direction[first].astype(object) if len(first) else np.empty(0, object),
            "count": stats["count"],
            "total": stats["total"],
            "bytes": moved,
            "bandwidth": bandwidth,
            "call_time": sums(row, call_time, count),
            **{name: stats[name] for name in ("mean", "median", "min", "max", "stddev")},
        }
    ).sorted_by("total")


def _labels(trace: Trace) -> np.ndarray:
    labels = np.empty(len(trace.names), dtype=object)
    labels[:] = list(trace.names)
    return labels


def _merged_names(trace: Trace, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Name ids with all `ProfilerStep#N` as one, and the label of every id."""
    labels = _labels(trace)
    key = trace.name[events].astype(np.int64)
    steps = [i for i, name in enumerate(trace.names) if name.startswith(_STEP_NAME)]
    if steps:
        key = np.where(np.isin(key, steps), steps[0], key)
        labels[steps[0]] = _STEP_NAME + "*"
    return key, labels


def _kind_by_row(row: np.ndarray, kind: np.ndarray, count: int) -> np.ndarray:
    result = np.zeros(count, dtype=np.uint8)
    result[row] = kind
    return result
