"""Python functions by their own time: what a step spends outside of operators, where stacks were recorded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.trace.frames import frame_at
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["NO_FUNCTION", "OWN_CODE", "function_label", "in_function", "measure_functions"]

OWN_CODE = "its own code"
"""Of a function, beside what it spends in those that it calls."""
NO_FUNCTION = "(no function of the program)"


def measure_functions(facts: Core) -> Columns:
    """Own time of Python functions in the steady steps, on the thread that makes the steps; the longest first.

    Columns: `function` (innermost frame of the program's own files, as the profiler names it; "" where there is none),
    `inside` (the library or built-in function below it that the time is in; "" for its own code), `calls`, `time` (ns),
    `share` (of the steady steps). Calls that began before the first step count with their part in the steps. Empty
    without stacks.
    """
    trace, parent = facts.trace, facts.trace.nesting.parent
    events = np.flatnonzero((trace.lane == _lane(facts)) & np.isin(trace.kind, (*_PYTHON, *_NATIVE)))
    frames = events[trace.kind[events] == Kind.PYTHON]
    length = int((trace.steps.end - trace.steps.start)[facts.steps.steady].sum())
    if len(frames) == 0 or not length:
        return _columns([], [], np.empty(0), np.empty(0), 1)
    in_steps = np.zeros(len(trace), dtype=np.int64)
    in_steps[events] = _before(facts, trace.end[events]) - _before(facts, trace.start[events])
    own = in_steps.copy()
    child = events[parent[events] >= 0]
    np.subtract.at(own, parent[child], in_steps[child])

    # What an annotation spends outside of what it holds, the function around it does.
    spending = events[np.isin(trace.kind[events], _PYTHON)]
    function = nearest(parent, trace.kind == Kind.PYTHON, spending, include_self=True)
    spending, function = spending[function >= 0], function[function >= 0]
    frame = nearest(
        parent, (trace.kind == Kind.PYTHON) & trace.user_frame_names[trace.name], function, include_self=True
    )
    outer = np.where(frame >= 0, trace.name[np.maximum(frame, 0)].astype(np.int64), -1)
    inner = np.where(function == frame, -1, trace.name[function].astype(np.int64))
    inner = _same_built_in(list(trace.names), inner)
    pairs, row = np.unique(np.stack((outer, inner), axis=1), axis=0, return_inverse=True)
    row = row.reshape(-1)
    time = np.bincount(row, weights=np.maximum(own[spending], 0), minlength=len(pairs))
    called = (trace.kind[spending] == Kind.PYTHON) & (in_steps[spending] > 0)
    calls = np.bincount(row[called], minlength=len(pairs))
    texts = [*(str(name) for name in trace.names), ""]  # the last is for no frame
    outside, inside = pairs[:, 0].tolist(), pairs[:, 1].tolist()
    return _columns([texts[row] for row in outside], [texts[row] for row in inside], calls, time, length)


def _same_built_in(names: list[str], rows: np.ndarray) -> np.ndarray:
    """Rows of names with the methods of different objects as one: `... object at 0x7f...>` tells nobody anything."""
    first: dict[str, int] = {}
    used = np.unique(rows)
    same = {row: row if row < 0 else first.setdefault(_ADDRESS.sub("", names[row]), row) for row in used.tolist()}
    return np.array([same[row] for row in used.tolist()], dtype=np.int64)[np.searchsorted(used, rows)]


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_BUILT_IN = re.compile(r"^<built-in (?:function|method) (\S+?)(?: of .*)?>$")


def function_label(name: str, detail: str = "") -> str:
    """A frame in a few words: `sleep` for a built-in function, else `main (train.py:12)`; `detail` as a tree has it."""
    if built_in := _BUILT_IN.match(name):
        return built_in[1]
    frame = frame_at(name, detail)
    if not frame.file:
        return name
    return f"{frame.function} ({frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line})"


def in_function(function: str, inside: str) -> str:
    """Where time goes, from the columns `function` and `inside` of a table: `sleep in main (train.py:12)`."""
    if inside == OWN_CODE:
        return function
    return inside if function == NO_FUNCTION else f"{inside} in {function}"


_PYTHON = (Kind.PYTHON, Kind.ANNOTATION)
_NATIVE = (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)


def _columns(outer: list[str], inner: list[str], calls: np.ndarray, time: np.ndarray, length: int) -> Columns:
    columns = Columns(
        {
            "function": np.array(outer, dtype=object),
            "inside": np.array(inner, dtype=object),
            "calls": calls.astype(np.int64),
            "time": time.astype(np.int64),
            "share": time / length,
        }
    )
    return columns.take(columns["time"] > 0).sorted_by("time")


def _lane(facts: Core) -> int:
    """The thread of the steps; without marks the one with the most time in operators."""
    trace = facts.trace
    marks = trace.steps.event[trace.steps.event >= 0] if trace.steps.recorded else np.empty(0, dtype=np.int64)
    if len(marks):
        return int(np.bincount(trace.lane[marks]).argmax())
    operators = trace.of(Kind.OPERATOR)
    if len(operators) == 0:
        return -1
    return int(np.bincount(trace.lane[operators], weights=facts.host.self_time[operators]).argmax())


def _before(facts: Core, at: np.ndarray) -> np.ndarray:
    """Time of steady steps before each moment, ns."""
    steps, steady = facts.trace.steps, facts.steps.steady
    order = np.argsort(steps.start[steady], kind="stable")
    start, end = steps.start[steady][order], steps.end[steady][order]
    total = np.concatenate(([0], np.cumsum(end - start)))
    last = np.searchsorted(start, at, side="right") - 1
    inside = np.minimum(at, end[np.maximum(last, 0)]) - start[np.maximum(last, 0)]
    return np.where(last < 0, 0, total[np.maximum(last, 0)] + inside).astype(np.int64)
