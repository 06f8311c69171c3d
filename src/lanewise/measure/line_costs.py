"""Launches, device time and host time by the source line that caused them: what stacks tell beyond operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns, sums
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["measure_lines"]

_SHORT_NS = 10_000

_OPERATOR, _RUNTIME, _DRIVER = Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER


def measure_lines(facts: Core) -> Columns:
    """What each frame of the program caused in a steady step, frames that caused more host time first.

    Columns: `line` (the frame's name: file, line and function), `launches`, `short` (kernels below 10 us), `kernels`,
    `device` (time of all device work), `host` (self time of operators and API calls, as recorded). Counts and ns per
    steady step. The frame is the innermost one around the event; backward work has none and goes to the frame of its
    forward operator. Events with neither are left out. Empty without stacks.
    """
    trace = facts.trace
    frames = (trace.kind == Kind.PYTHON) & trace.user_frame_names[trace.name]
    steady = facts.in_steady_step
    steps = facts.steady_count

    host = np.flatnonzero(steady & np.isin(trace.kind, (_OPERATOR, _RUNTIME, _DRIVER))) if frames.any() else _NONE
    line_of = np.full(len(trace) + 1, -1, dtype=np.int64)  # the last is for events without a launch
    line_of[host] = _line(facts, frames, host)
    work = np.flatnonzero(steady[trace.device_work])
    line_of_work = line_of[trace.links.launch[work]]

    used, row = np.unique(np.concatenate((line_of[host], line_of_work)), return_inverse=True)
    host_row, work_row = row[: len(host)], row[len(host) :]
    count = len(used)
    device = trace.device_work[work]
    kernel = trace.kind[device] == Kind.KERNEL
    launching = np.zeros(len(trace), dtype=np.int64)
    launching[facts.launches.call] = 1
    names = np.array([trace.names[name] if name >= 0 else "" for name in used.tolist()], dtype=object)
    columns = Columns(
        {
            "line": names,
            "launches": sums(host_row, launching[host], count) / steps,
            "kernels": sums(work_row, kernel.astype(np.int64), count) / steps,
            "short": sums(work_row, (kernel & (trace.duration[device] < _SHORT_NS)).astype(np.int64), count) / steps,
            "device": sums(work_row, trace.duration[device], count) / steps,
            "host": sums(host_row, facts.host.self_time[host], count) / steps,
        }
    )
    return columns.take(used >= 0).sorted_by("host")


_NONE = np.empty(0, dtype=np.int64)


def _line(facts: Core, frames: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Name of the frame that caused each host event, or -1."""
    trace = facts.trace
    parent = trace.nesting.parent
    frame = nearest(parent, frames, events)
    without = np.flatnonzero(frame < 0)
    backward = nearest(parent, trace.links.forward_of >= 0, events[without], include_self=True)
    linked = backward >= 0
    frame[without[linked]] = nearest(parent, frames, trace.links.forward_of[backward[linked]])
    return np.where(frame >= 0, trace.name[np.maximum(frame, 0)].astype(np.int64), -1)
