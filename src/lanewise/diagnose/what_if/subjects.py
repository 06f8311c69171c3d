"""Which events of the steady steps a name means: kernels, operators, modules, lines, functions, copies, collectives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate

import numpy as np

from lanewise.diagnose.select import device_rows, outermost
from lanewise.errors import UsageError
from lanewise.measure.facts import Facts
from lanewise.measure.kernel_names import short_name
from lanewise.trace.frames import parse_frame
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["NAMED", "UNNAMED", "Subject", "find_subject"]

_MODULE = "nn.Module: "


@dataclass(frozen=True, eq=False)
class Subject:
    """Events of the steady steps.

    Attributes:
        host: host rows that do the work; none where only device work is meant.
        device: device work: what was named, or what the host rows launch.
    """

    host: np.ndarray
    device: np.ndarray


def find_subject(facts: Facts, kind: str, name: str) -> Subject:
    """The events that `kind` (one of NAMED or UNNAMED) and a name mean.

    Raises:
        UsageError: nothing in the steady steps has such a name.
    """
    if kind in UNNAMED:
        return UNNAMED[kind](facts)
    return NAMED[kind](facts, name)


def _kernels(facts: Facts, name: str) -> Subject:
    trace = facts.trace
    events = trace.device_work[device_rows(facts)]
    labels = {
        int(one): f"{trace.names[int(one)]}\n{short_name(trace.names[int(one)])}" for one in _names(facts, events)
    }
    chosen = _named(facts, "kernel", name, events, labels)
    return Subject(_NONE, events[np.isin(trace.name[events], chosen)])


def _operators(facts: Facts, name: str) -> Subject:
    trace = facts.trace
    rows = facts.steady_events(trace.of(Kind.OPERATOR, Kind.ANNOTATION))
    rows = rows[~trace.name_mask("^ProfilerStep#")[trace.name[rows]]]
    labels = {int(one): trace.names[int(one)] for one in _names(facts, rows)}
    chosen = _named(facts, "operator", name, rows, labels)
    return _launching(facts, rows[np.isin(trace.name[rows], chosen)])


def _modules(facts: Facts, name: str) -> Subject:
    trace = facts.trace
    rows = _frames(facts, "a module")
    of_name = {int(one): trace.names[int(one)] for one in _names(facts, rows)}
    labels = {one: text.removeprefix(_MODULE) for one, text in of_name.items() if text.startswith(_MODULE)}
    chosen = _named(facts, "module", name, rows, labels)
    return _with_backward(facts, rows[np.isin(trace.name[rows], chosen)])


def _lines(facts: Facts, name: str) -> Subject:
    """`train.py`, `train.py:12`: the functions of a file, or the one that begins in a line."""
    trace = facts.trace
    rows = _frames(facts, "a line")
    labels: dict[int, str] = {}
    for one in _names(facts, rows):
        frame = parse_frame(trace.names[int(one)])
        if frame.file:
            labels[int(one)] = f"{frame.file}:{frame.line}"
    file, _, line = name.rpartition(":")
    wanted, line = (file, line) if file and line.isdecimal() else (name, "")
    suffix = wanted.replace("\\", "/")
    chosen = [
        one
        for one, label in labels.items()
        if ("/" + label.rpartition(":")[0].replace("\\", "/")).endswith("/" + suffix)
        and (not line or label.rpartition(":")[2] == line)
    ]
    if not chosen:
        raise _none_of(facts, "line", name, rows, labels)
    return _with_backward(facts, rows[np.isin(trace.name[rows], chosen)])


def _functions(facts: Facts, name: str) -> Subject:
    trace = facts.trace
    rows = _frames(facts, "a function")
    labels = {int(one): parse_frame(trace.names[int(one)]).function for one in _names(facts, rows)}
    labels = {one: text for one, text in labels.items() if not text.startswith(_MODULE)}
    chosen = _named(facts, "function", name, rows, labels)
    return _with_backward(facts, rows[np.isin(trace.name[rows], chosen)])


def _frames(facts: Facts, what: str) -> np.ndarray:
    rows = facts.steady_events(facts.trace.of(Kind.PYTHON))
    if len(rows) == 0:
        raise UsageError(f"the trace has no stacks to find {what} by; record with_stack=True, or by lanewise run")
    return rows


def _copies(facts: Facts) -> Subject:
    trace, args = facts.trace, facts.trace["copy_args"]
    outside = args["event"][(args["direction"] == "HtoD") | (args["direction"] == "DtoH")]
    return Subject(_NONE, np.intersect1d(trace.device_work[device_rows(facts)], outside))


def _communication(facts: Facts) -> Subject:
    rows = device_rows(facts)
    return Subject(_NONE, facts.trace.device_work[rows[facts.is_family("communication")[rows]]])


def _waits(facts: Facts) -> Subject:
    return Subject(facts.steady_events(np.flatnonzero(facts.host.waiting)), _NONE)


def _optimizer(facts: Facts) -> Subject:
    step = facts.optimizer_step
    return Subject(_NONE, _NONE) if step is None else _launching(facts, step.marks)


NAMED: dict[str, Callable[[Facts, str], Subject]] = {
    "kernel": _kernels,
    "operator": _operators,
    "module": _modules,
    "line": _lines,
    "function": _functions,
}
"""Kinds of subjects that are told apart by a name."""

UNNAMED: dict[str, Callable[[Facts], Subject]] = {
    "copies": _copies,
    "communication": _communication,
    "waits": _waits,
    "optimizer": _optimizer,
}
"""Kinds of subjects that there is one of."""

_NONE = np.empty(0, dtype=np.int64)


def _names(facts: Facts, events: np.ndarray) -> list[int]:
    return np.unique(facts.trace.name[events]).tolist()


def _named(facts: Facts, kind: str, wanted: str, events: np.ndarray, labels: dict[int, str]) -> list[int]:
    """Name ids whose label is what was wanted, in any case; else those that fit it as a pattern; else that hold it."""
    low = wanted.lower()
    pattern = re.compile(translate(wanted), re.IGNORECASE)
    exact: list[int] = []
    fitting: list[int] = []
    holding: list[int] = []
    for one, label in labels.items():
        texts = label.split("\n")
        if any(text.lower() == low for text in texts):
            exact.append(one)
        elif any(pattern.match(text) for text in texts):
            fitting.append(one)
        elif any(low in text.lower() for text in texts):
            holding.append(one)
    chosen = exact or fitting or holding
    if not chosen:
        raise _none_of(facts, kind, wanted, events, labels)
    return chosen


def _none_of(facts: Facts, kind: str, wanted: str, events: np.ndarray, labels: dict[int, str]) -> UsageError:
    shown = {label.split("\n")[-1]: one for one, label in labels.items()}
    near = get_close_matches(wanted, shown, n=3, cutoff=0.5)
    if near:
        return UsageError(f"no {kind} {wanted!r} in the steady steps; near: {', '.join(near)}")
    time = np.bincount(facts.trace.name[events], weights=facts.trace.duration[events], minlength=len(facts.trace.names))
    longest = sorted(shown, key=lambda label: -time[shown[label]])[:3]
    there = f"the longest: {', '.join(longest)}" if longest else "there are none"
    return UsageError(f"no {kind} {wanted!r} in the steady steps; {there}")


def _launching(facts: Facts, rows: np.ndarray) -> Subject:
    """Host rows with the device work that they launch."""
    trace = facts.trace
    rows = outermost(facts, rows)
    inside = mask_of(len(trace), rows)
    launch = trace.links.launch
    linked = np.flatnonzero(launch >= 0)
    held = nearest(trace.nesting.parent, inside, launch[linked], include_self=True) >= 0
    return Subject(rows, trace.device_work[linked[held]])


def _with_backward(facts: Facts, frames: np.ndarray) -> Subject:
    """Frames, and the backward work of the operators in them."""
    trace = facts.trace
    inside = mask_of(len(trace), frames)
    forward = trace.links.forward_of
    backward = facts.steady_events(np.flatnonzero(forward >= 0))
    mine = nearest(trace.nesting.parent, inside, forward[backward], include_self=True) >= 0
    return _launching(facts, np.concatenate((frames, backward[mine])))
