"""Steps and annotations as time windows, and the step that every event belongs to.

Device work belongs to the step in which its launch started, on any thread: the projected annotation on the device lane
covers idle time and misses work that other threads launched (trace-format 9.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.groups import distinct
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.trace.model import Trace

__all__ = ["Steps", "find_steps"]

# The device is at most this many steps behind the host; what runs later was launched after the steps.
_BEHIND = 2

_STEP = re.compile(r"^ProfilerStep#(\d+)$")
# Serving engines mark their own steps: vLLM and SGLang.
_SERVING = re.compile(r"^(execute_context_\S+|execute_model\b.*|.*\bgeneration_\S+\(.*\).*)$")


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of a trace.

    Attributes:
        source: "profiler" for `ProfilerStep#N`, "serving" for an engine's marks, "window" for one region over all.
        number: number of each step as recorded, shape (steps,).
        start, end: host window of each step, ns, shape (steps,). It times submission, not the device's work.
        event: the marking event, or -1, shape (steps,).
        of_event: row of the step of every event, or -1, shape (events,).
    """

    source: str
    number: np.ndarray
    start: np.ndarray
    end: np.ndarray
    event: np.ndarray
    of_event: np.ndarray

    def __len__(self) -> int:
        return len(self.number)

    @property
    def recorded(self) -> bool:
        """Whether the trace marks steps; otherwise the one row is the whole window."""
        return self.source != "window"


def find_steps(trace: Trace) -> Steps:
    """Steps of a trace; one region over the whole window where nothing marks a step."""
    event, number, source = _marks(trace)
    if len(event) == 0:
        work = trace.of(*(kind for kind in range(Kind.COUNTER) if kind != Kind.OVERHEAD))
        start = np.array([trace.start[work].min() if len(work) else 0], dtype=np.int64)
        end = np.array([trace.end[work].max() + 1 if len(work) else 0], dtype=np.int64)
        return _assign(trace, "window", np.zeros(1, np.int64), start, end, np.full(1, -1, np.int64))
    order = np.argsort(trace.start[event], kind="stable")
    event = event[order]
    return _assign(trace, source, number[order], trace.start[event], trace.end[event], event)


def _marks(trace: Trace) -> tuple[np.ndarray, np.ndarray, str]:
    """Marking events, one per number, with their numbers."""
    annotations = trace.of(Kind.ANNOTATION, Kind.OPERATOR)
    names = trace.names
    used = distinct(trace.name[annotations], len(names))
    steps = {int(i): int(m[1]) for i in used if (m := _STEP.match(names[int(i)])) and len(m[1]) < 18}
    source = "profiler"
    if not steps:
        steps = {int(i): -1 for i in used if _SERVING.match(names[int(i)])}
        source = "serving"
    if not steps:
        return np.empty(0, np.int64), np.empty(0, np.int64), "window"
    events = annotations[np.isin(trace.name[annotations], np.fromiter(steps, np.int64))]
    events = events[np.argsort(trace.start[events], kind="stable")]
    if source == "serving":
        # Marks may nest (an engine's and its worker's): keep the outermost ones.
        kept: list[int] = []
        until = -1
        for event in events.tolist():
            if trace.start[event] >= until:
                kept.append(event)
                until = int(trace.end[event])
        return np.array(kept, np.int64), np.arange(len(kept), dtype=np.int64), source
    numbers = np.array([steps[int(i)] for i in trace.name[events]], dtype=np.int64)
    # Some builds mark a step on several threads: the longest mark of a number is the loop's own.
    best: dict[int, int] = {}
    for event, number in zip(events.tolist(), numbers.tolist(), strict=True):
        if number not in best or trace.duration[event] > trace.duration[best[number]]:
            best[number] = event
    kept_numbers = np.array(list(best), dtype=np.int64)
    return np.array(list(best.values()), dtype=np.int64), kept_numbers, source


def _assign(
    trace: Trace, source: str, number: np.ndarray, start: np.ndarray, end: np.ndarray, event: np.ndarray
) -> Steps:
    of_event = _containing(trace.start, start, end, number)
    device = trace.device_work
    launch = trace.links.launch
    linked = launch >= 0
    of_device = np.full(len(device), -1, dtype=np.int32)
    of_device[linked] = of_event[launch[linked]]
    lost = trace.links.orphan == 2
    if lost.any():
        inside = linked & (of_device >= 0)
        of_device[lost] = _running(trace.start[device[lost]], start, end, of_device[inside], trace.end[device[inside]])
    of_event[device] = of_device
    return Steps(source, number, start, end, event, of_event)


def _running(time: np.ndarray, start: np.ndarray, end: np.ndarray, step: np.ndarray, done: np.ndarray) -> np.ndarray:
    """The step whose work the device had in hand at each time, or -1, where no launch says it.

    That is the first step whose known work (of `step`, done at `done`) is not finished yet, but none that the host has
    not begun. A step of which no work is known is done when the host is. What runs long after all steps is of none.
    """
    finish = np.full(len(start), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(finish, step, done)
    finish = np.where(np.isin(np.arange(len(start)), step), finish, end)
    finish = np.maximum.accumulate(np.maximum(finish, start))
    begun = np.searchsorted(start, time, side="right") - 1
    row = np.minimum(np.searchsorted(finish, time), begun)
    late = time > max(int(finish[-1]), int(end[-1])) + _BEHIND * int(np.median(end - start))
    return np.where(late, -1, row)


def _containing(time: np.ndarray, start: np.ndarray, end: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Row of the step window that holds each time, or -1; consecutive steps leave no hole between them."""
    until = end.copy()
    if len(start) > 1:
        consecutive = np.diff(number) == 1
        until[:-1] = np.where(consecutive, np.maximum(end[:-1], start[1:]), np.minimum(end[:-1], start[1:]))
    row = np.searchsorted(start, time, side="right") - 1
    inside = (row >= 0) & (time < until[np.maximum(row, 0)])
    return np.where(inside, row, -1).astype(np.int32)
