"""Regions that torch.compile runs: where they are, and what lies inside them.

Rows are known by name, never by category: the same build writes `## Call CompiledFxGraph` as an operator or as an
annotation, depending on the options of the recording (trace-format 9.3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Regions", "measure_regions"]

_REGION = re.compile(r"^Torch-Compiled Region(?:: (\d+)/(\d+))?$")


@dataclass(frozen=True, eq=False)
class Regions:
    """Compiled regions of a trace; arrays of event ids unless said otherwise, in file order.

    Attributes:
        region: `Torch-Compiled Region: K/M`, shape (regions,).
        frame, index: K and M of each, -1 where the build does not write them, shape (regions,).
        parent: the region around each region, or -1, shape (regions,).
        graph_call: `## Call CompiledFxGraph`.
        function: `CompiledFunction` and `CompiledFunctionBackward`, the compiled autograd nodes; older builds write no
            region around them.
        lookup: `TorchDynamo Cache Lookup`.
        within: the region, graph call or compiled node around each call that launched something, innermost, or -1;
            in the order of `Launches.call`.
        graph_of_call: the `CompiledFxGraph` call around each of these calls, or -1.
    """

    region: np.ndarray
    frame: np.ndarray
    index: np.ndarray
    parent: np.ndarray
    graph_call: np.ndarray
    function: np.ndarray
    lookup: np.ndarray
    within: np.ndarray
    graph_of_call: np.ndarray

    @property
    def present(self) -> bool:
        """Whether anything compiled runs."""
        return len(self.region) + len(self.graph_call) + len(self.function) > 0


def measure_regions(facts: Core) -> Regions:
    """Find the compiled regions of a trace."""
    trace = facts.trace
    events = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    ids: dict[int, tuple[int, int]] = {}
    graph_names: list[int] = []
    for row, name in enumerate(trace.names):
        if name.startswith("Torch-Compiled Region"):
            found = _REGION.match(name)
            if found:
                ids[row] = (int(found[1] or -1), int(found[2] or -1))
        elif name.startswith("## Call CompiledFxGraph"):
            graph_names.append(row)

    def named(rows: np.ndarray) -> np.ndarray:
        return events[np.isin(trace.name[events], rows)] if len(rows) else np.empty(0, np.int64)

    region = named(np.fromiter(ids, np.int64))
    graph_call = named(np.array(graph_names, dtype=np.int64))
    function = named(trace.name_ids("CompiledFunction", "CompiledFunctionBackward"))
    lookup = named(trace.name_ids("TorchDynamo Cache Lookup"))
    calls = facts.launches.call
    nothing = np.full(len(calls), -1, dtype=np.int64)
    within, graph_of_call, parent = nothing, nothing, np.full(len(region), -1, dtype=np.int64)
    if len(region) + len(graph_call) + len(function):
        within = nearest(facts.host.parent, _mask(facts, region, graph_call, function), calls)
        graph_of_call = nearest(facts.host.parent, _mask(facts, graph_call), calls)
        parent = nearest(facts.host.parent, _mask(facts, region), region)
    numbers = [ids[row] for row in trace.name[region].tolist()]
    return Regions(
        region=region,
        frame=np.array([k for k, _ in numbers], dtype=np.int64),
        index=np.array([m for _, m in numbers], dtype=np.int64),
        parent=parent,
        graph_call=graph_call,
        function=function,
        lookup=lookup,
        within=within,
        graph_of_call=graph_of_call,
    )


def _mask(facts: Core, *events: np.ndarray) -> np.ndarray:
    return mask_of(len(facts.trace), np.concatenate(events))
