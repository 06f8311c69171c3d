"""What runs before a graph is replayed only to bring its inputs to fixed addresses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.compile.compiled_regions import measure_regions
from lanewise.measure.core import Core, remembered
from lanewise.measure.kernel_names import FAMILIES
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

__all__ = ["GraphInputs", "graph_inputs"]


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """Copies before graph launches, in steady steps.

    Attributes:
        row: rows of `Trace.device_work` of the copies.
        launches: graph launches in steady steps.
        device_ns: device time of the copies; of_device_ns: of everything in the regions. Sums over steady steps, ns.
        host_ns: host time of the operators that copy; of_host_ns: from the regions' begin to the end of their launch.
    """

    row: np.ndarray
    launches: np.ndarray
    device_ns: int
    of_device_ns: int
    host_ns: int
    of_host_ns: int


@remembered
def graph_inputs(facts: Core) -> GraphInputs | None:
    """Measure them; None without graph launches in steady steps.

    A region begins with the compiled region around the launch. Where the graph is launched by hand only the copies
    directly before the launch count, since nothing says what else belongs to it. Copies from the host count as loading
    data, not as moving it about.
    """
    trace, links = facts.trace, facts.trace.links
    launches = links.calls("graph_launch")
    launches = facts.steady_events(launches)
    if len(launches) == 0:
        return None
    launches = launches[np.lexsort((trace.start[launches], trace.lane[launches]))]
    linked = np.flatnonzero((links.launch >= 0) & ~links.graph_nodes)
    call = links.launch[linked]
    span = int(trace.end.max()) + 2
    begin = _begins(facts, launches, call[~_is_input_copy(facts, linked)], span)
    # Regions of one lane are disjoint and ordered, so the candidate is the next launch on the call's lane.
    key = trace.lane[launches].astype(np.int64) * span + trace.start[launches]
    at = np.searchsorted(key, trace.lane[call].astype(np.int64) * span + trace.start[call])
    near = np.minimum(at, len(launches) - 1)
    inside = (
        (at < len(launches)) & (trace.lane[launches[near]] == trace.lane[call]) & (trace.start[call] >= begin[near])
    )
    rows = linked[inside]
    copies = rows[_is_input_copy(facts, rows)]
    nodes = links.graph_nodes & np.isin(links.launch, launches)
    work = trace.device_work
    return GraphInputs(
        row=copies,
        launches=launches,
        device_ns=int(trace.duration[work[copies]].sum()),
        of_device_ns=int(trace.duration[work[rows]].sum() + trace.duration[work[nodes]].sum()),
        host_ns=_host_time(facts, copies),
        of_host_ns=int((trace.end[launches] - begin).sum()),
    )


def _begins(facts: Core, launches: np.ndarray, others: np.ndarray, span: int) -> np.ndarray:
    """When the region of each graph launch begins. `others`: launching calls that copy no input."""
    trace, regions = facts.trace, facts.of(measure_regions)
    compiled = mask_of(len(trace), regions.region)
    compiled[regions.graph_call] = True
    around = nearest(facts.host.parent, compiled, launches)
    step = trace.steps.of_event[launches]
    previous = np.concatenate(([-1], launches[:-1]))
    chained = (
        (previous >= 0) & (trace.lane[previous] == trace.lane[launches]) & (trace.steps.of_event[previous] == step)
    )
    since = np.where(chained, trace.end[np.maximum(previous, 0)], trace.steps.start[step])
    # By hand: after the last launch of anything else on the thread.
    keys = np.sort(trace.lane[others].astype(np.int64) * span + trace.start[others])
    own = trace.lane[launches].astype(np.int64) * span
    at = np.searchsorted(keys, own + trace.start[launches]) - 1
    last = np.where(at >= 0, keys[np.maximum(at, 0)], -1) - own if len(keys) else np.full(len(launches), -1)
    by_hand = np.maximum(since, last + 1)
    # A region may hold several launches: each owns what follows the one before.
    inside = np.where(around >= 0, trace.start[np.maximum(around, 0)], by_hand)
    return np.maximum(inside, np.where(chained, since, inside))


def _is_input_copy(facts: Core, rows: np.ndarray) -> np.ndarray:
    trace, links = facts.trace, facts.trace.links
    event = trace.device_work[rows]
    family = facts.family_of_name[trace.name[event]]
    operator = links.operator[rows]
    # A fill brings no input anywhere: it resets a buffer, and the graph could do that itself.
    filling = trace.name_mask(r"(?i)fill_?kernel|FillFunctor|^aten::(?:_foreach_)?(?:fill|zero)_?$")
    fills = filling[trace.name[event]] | ((operator >= 0) & filling[trace.name[np.maximum(operator, 0)]])
    copying = mask_of(len(trace.names), trace.name_ids("aten::_foreach_copy_", "aten::copy_"))
    by_operator = (operator >= 0) & copying[trace.name[np.maximum(operator, 0)]]
    kernel = (trace.kind[event] == Kind.KERNEL) & (by_operator | (family == FAMILIES.index("copy kernel")))
    args = trace["copy_args"]
    at = trace.lookup("copy_args", event)
    on_device = np.zeros(len(rows), dtype=bool)
    if len(args["event"]):
        on_device = (at >= 0) & (args["direction"][np.maximum(at, 0)] == "DtoD")
    return (kernel & ~fills) | on_device


def _host_time(facts: Core, rows: np.ndarray) -> int:
    """Time of the operators that copy, or of the bare calls where the operator is the compiled region itself."""
    trace, links, regions = facts.trace, facts.trace.links, facts.of(measure_regions)
    operator, call = links.operator[rows], links.launch[rows]
    own = (operator >= 0) & ~np.isin(operator, np.concatenate((regions.region, regions.graph_call, regions.function)))
    return int(trace.duration[np.unique(np.where(own, operator, call))].sum())
