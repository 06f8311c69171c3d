"""Which events a rule speaks of: steady device work, what launched it, what lies inside what, and whose time it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.diagnose.evidence import locate, operator_chain
from lanewise.measure.core import remembered
from lanewise.measure.facts import Facts
from lanewise.report.quantity import Quantity, text
from lanewise.trace.groups import distinct, mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = [
    "Sites",
    "claim",
    "climb",
    "compute_ns",
    "counted",
    "device_rows",
    "device_sum",
    "enclosing",
    "host_cost",
    "named",
    "of_step",
    "outermost",
    "per",
    "sites",
]


def of_step(facts: Facts, ns: float) -> float:
    """Share of the step that a time per step is."""
    return ns / max(1.0, facts.steps.step_ns)


def claim(facts: Facts, rows: np.ndarray) -> list[int]:
    """What a finding about rows of `Trace.device_work` owns: the work, and the calls that launched it."""
    calls = facts.trace.links.launch[rows]
    return [*facts.trace.device_work[rows].tolist(), *np.unique(calls[calls >= 0]).tolist()]


def counted(number: float, one: str, many: str) -> Quantity:
    """A number with its noun, for a title: "1 copy", "3 copies", "2.5 copies"."""
    value = round(number) if number >= 10 else round(number, 1)
    return text(f"{value:,g} {one if value == 1 else many}")


def per(facts: Facts) -> Quantity:
    """What sums refer to, for a title: "per step", or "in this recording" where nothing marks steps."""
    return text("per step" if facts.trace.steps.recorded else "in this recording")


def device_rows(facts: Facts, *kinds: int) -> np.ndarray:
    """Rows of `Trace.device_work` in steady steps, of the given kinds (any by default), in file order."""
    trace = facts.trace
    chosen = facts.in_steady_step[trace.device_work]
    if kinds:
        chosen &= np.isin(trace.kind[trace.device_work], np.array(kinds, dtype=np.uint8))
    return np.flatnonzero(chosen)


def device_sum(facts: Facts, rows: np.ndarray) -> float:
    """Device time of rows of `Trace.device_work`, ns per steady step."""
    return float(facts.trace.duration[facts.trace.device_work[rows]].sum()) / facts.steady_count


@remembered
def compute_ns(facts: Facts) -> float:
    """Class C of diagnoses.md: time per step in which the device computes, ns; at least 1, and at least what its kernels
    take, so that none of them has more than all of it."""
    kernels = device_rows(facts, Kind.KERNEL)
    own = kernels[~facts.is_family("communication")[kernels]]
    return max(1.0, facts.steps.class_ns.get("compute", 0.0), device_sum(facts, own))


def host_cost(facts: Facts, calls: np.ndarray) -> float:
    """Host time of the operators that made the given launching calls, ns per steady step; each call counts once."""
    calls = distinct(calls[calls >= 0], len(facts.trace))
    if len(calls) == 0:
        return 0.0
    at = np.minimum(np.searchsorted(facts.launches.call, calls), len(facts.launches.call) - 1)
    known = facts.launches.call[at] == calls
    return float(facts.launches.host_cost[at[known]].sum()) / facts.steady_count


def named(facts: Facts, kinds: tuple[int, ...], *names: str) -> np.ndarray:
    """Events of the given kinds with exactly one of the given names, in file order."""
    trace = facts.trace
    wanted = mask_of(len(trace.names) + 1, trace.name_ids(*names))
    return np.flatnonzero(np.isin(trace.kind, np.array(kinds, dtype=np.uint8)) & wanted[trace.name])


def outermost(facts: Facts, events: np.ndarray) -> np.ndarray:
    """The given host events without those that lie inside another of them, in (lane, start) order."""
    order, reach = _by_lane(facts, events)
    if len(order) == 0:
        return order
    start = _key(facts, order)
    inside = np.concatenate(([False], start[1:] < reach[:-1]))
    return order[~inside]


def enclosing(facts: Facts, holders: np.ndarray, events: np.ndarray) -> np.ndarray:
    """For each event, the one of `holders` on its lane in which it starts, or -1; holders must not nest."""
    order, reach = _by_lane(facts, holders)
    if len(order) == 0 or len(events) == 0:
        return np.full(len(events), -1, dtype=np.int64)
    at = np.searchsorted(_key(facts, order), _key(facts, events), side="right") - 1
    inside = (at >= 0) & (_key(facts, events) < reach[np.maximum(at, 0)])
    # A holder that begins at the same instant as its content still holds it; an event does not hold itself.
    found = np.where(inside, order[np.maximum(at, 0)], -1)
    return np.where(found == events, -1, found)


def climb(facts: Facts, events: np.ndarray, through: np.ndarray) -> np.ndarray:
    """From each event up through parents whose name is in `through` (bool per name), as far as they reach."""
    parent, name = facts.host.parent, facts.trace.name
    at = events.astype(np.int64)
    while True:
        above = parent[at]
        go = (above >= 0) & through[name[np.maximum(above, 0)]]
        if not go.any():
            return at
        at = np.where(go, above, at)


class Sites(NamedTuple):
    """Call sites of host events.

    Attributes:
        label: where each site is, as text: source line if the trace has stacks, and the operators.
        of_event: site of each event.
        example: one event of each site.
    """

    label: list[str]
    of_event: np.ndarray
    example: np.ndarray


def sites(facts: Facts, events: np.ndarray, *, operators: int = 3) -> Sites:
    """Group host events by what called them: the operator around and, with stacks, the nearest frame of the program."""
    trace, parent = facts.trace, facts.host.parent
    above = parent[events]
    # Each step has a name of its own: what lies directly below it is the same place in all of them.
    above = np.where((above >= 0) & trace.name_mask("^ProfilerStep#")[trace.name[np.maximum(above, 0)]], -1, above)
    outer = np.where(above >= 0, trace.name[np.maximum(above, 0)].astype(np.int64), -1)
    frames = trace.kind == Kind.PYTHON
    frame = np.full(len(events), -1, dtype=np.int64)
    if frames.any():
        at = nearest(trace.nesting.parent, frames, events)
        frame = np.where(at >= 0, trace.name[np.maximum(at, 0)].astype(np.int64), -1)
    keys = np.stack((trace.name[events].astype(np.int64), outer, frame), axis=1)
    _, example, of_event = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    labels: list[str] = []
    for event in events[example].tolist():
        chain = " > ".join(operator_chain(facts, event, operators))
        place = locate(facts, event)
        where = ""
        if place and (place.file or place.module):
            where = f"{place.file}:{place.line} " if place.file else f"{place.module}: "
        labels.append((where + chain).strip() or trace.name_of(event))
    return Sites(labels, of_event.reshape(-1), events[example])


def _by_lane(facts: Facts, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Events in (lane, start, longest first) order, and how far they and the earlier ones of their lane reach."""
    key = _key(facts, events)
    order = events[np.lexsort((-facts.trace.duration[events], key))]
    return order, np.maximum.accumulate(_key(facts, order) + facts.trace.duration[order])


def _key(facts: Facts, events: np.ndarray) -> np.ndarray:
    """One number line for all lanes: lanes never mix, because each is longer than the recording."""
    trace = facts.trace
    span = 2 * int(trace.end.max() if len(trace) else 0) + 2
    return trace.lane[events].astype(np.int64) * span + trace.start[events]
