"""Backward work: which forward operator it belongs to, what it costs, and what it only repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import sums
from lanewise.trace.groups import mask_of
from lanewise.trace.intervals import covered, union
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import ENGINE_PREFIX, Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Backward", "measure_backward"]

_NODE = f"^{ENGINE_PREFIX}"


@dataclass(frozen=True, eq=False)
class Backward:
    """Backward nodes and device time by direction, steady steps only; device work beside communication is left out.

    Attributes:
        node: `autograd::engine::evaluate_function: XBackward0` rows, shape (nodes,).
        forward: forward operator of each, or -1, shape (nodes,).
        device_ns: device time launched inside each node, recomputed forward work left out, shape (nodes,).
        forward_ns: device time launched inside each forward operator, -1 where unknown, shape (nodes,).
        recompute_calls: launching calls of forward operators that run inside backward nodes.
        recompute_ns, total_forward_ns: device time of these calls; of all calls outside backward. Sums, ns.
    """

    node: np.ndarray
    forward: np.ndarray
    device_ns: np.ndarray
    forward_ns: np.ndarray
    recompute_calls: np.ndarray
    recompute_ns: int
    total_forward_ns: int


def measure_backward(facts: Core) -> Backward | None:
    """Measure it; None without backward rows in steady steps."""
    trace, parent = facts.trace, facts.host.parent
    operators = trace.of(Kind.OPERATOR)
    if len(operators) == 0:
        return None
    node = operators[trace.name_mask(_NODE)[trace.name[operators]] & facts.in_steady_step[operators]]
    if len(node) == 0:
        return None
    is_node = mask_of(len(trace), node)
    calls = facts.steady_events(facts.launches.call)
    launched = _undisturbed(facts)

    owner = nearest(parent, is_node, calls)
    # Operators of the backward pass itself run with grad mode off and carry no sequence number; a forward operator that
    # is recorded for another backward does (Fwd thread id 0).
    sequence, thread = trace["events"]["sequence"], trace["events"]["forward_thread"]
    recorded = (trace.kind == Kind.OPERATOR) & (sequence >= 0) & (thread <= 0) & ~is_node
    above = nearest(parent, recorded | is_node, calls)
    repeats = (owner >= 0) & (above >= 0) & ~is_node[np.maximum(above, 0)]
    own = (owner >= 0) & ~repeats
    device = sums(owner[own], launched[calls[own]], len(trace))

    forward = trace.links.forward_of[node]
    is_forward = mask_of(len(trace), forward[forward >= 0])
    holder = nearest(parent, is_forward, calls)
    outside = (holder >= 0) & (owner < 0)
    forward_time = sums(holder[outside], launched[calls[outside]], len(trace))
    return Backward(
        node=node,
        forward=forward,
        device_ns=device[node],
        forward_ns=np.where(forward >= 0, forward_time[np.maximum(forward, 0)], -1),
        recompute_calls=calls[repeats],
        recompute_ns=int(launched[calls[repeats]].sum()),
        total_forward_ns=int(launched[calls[owner < 0]].sum()),
    )


def _undisturbed(facts: Core) -> np.ndarray:
    """Device time of each launching call, ns per event; work beside communication is left out: it is slow for that
    reason (DIS105), and communication belongs to no operator's arithmetic."""
    trace, links = facts.trace, facts.trace.links
    work = trace.device_work
    communication = facts.is_family("communication")
    beside = communication.copy()
    if communication.any():
        spinning = union(trace.start[work[communication]], trace.end[work[communication]])
        beside |= covered(spinning, trace.start[work], trace.end[work]) > 0
    counted = (links.launch >= 0) & ~beside
    return sums(links.launch[counted], trace.duration[work[counted]], len(trace))
