"""What a compiled program still runs outside its compiled regions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.compile.compiled_regions import measure_regions
from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["Remainder", "eager_remainder_of"]


@dataclass(frozen=True, eq=False)
class Remainder:
    """Sums over steady steps, ns.

    Attributes:
        operators: outermost operators outside compiled regions, compilation and cache lookups. calls: launching calls
        outside compiled regions. host_ns, host_total_ns, host_optimizer_ns: time of these operators; of all outermost
        ones; of those inside an
            optimizer step. Without waits.
        device_ns, device_total_ns, device_optimizer_ns: device time of what the calls launched; of all; of the
        optimizer.
    """

    operators: np.ndarray
    calls: np.ndarray
    host_ns: int
    host_total_ns: int
    host_optimizer_ns: int
    device_ns: int
    device_total_ns: int
    device_optimizer_ns: int


def eager_remainder_of(facts: Core) -> Remainder | None:
    """Measure it; None without launches in steady steps."""
    trace, host, regions = facts.trace, facts.host, facts.of(measure_regions)
    chosen = facts.in_steady_step[facts.launches.call]
    calls = facts.launches.call[chosen]
    if len(calls) == 0:
        return None
    outside = calls[regions.within[chosen] < 0]

    events = trace.of(Kind.OPERATOR)
    events = events[(host.outermost_operator[events] == events) & facts.in_steady_step[events]]
    own = mask_of(len(trace), np.concatenate((regions.region, regions.graph_call, regions.lookup, facts.compile_rows)))
    # The engine's row is around the compiled backward: what holds a compiled piece is compiled.
    holding = np.concatenate((regions.region, regions.graph_call, regions.function))
    own[host.outermost_operator[holding[host.outermost_operator[holding] >= 0]]] = True
    compiled = own[events] | (nearest(host.parent, own, events) >= 0)
    dynamo = trace.name_mask(r"^(?:dynamo|entire_frame_compile|_compile\.compile_inner)")[trace.name[events]]
    work = trace.duration[events] - host.wait_inside[events]
    rest = ~compiled & ~dynamo

    optimizer = np.zeros(len(trace), dtype=bool)
    marks = trace.of(Kind.ANNOTATION, Kind.OPERATOR)
    if len(marks):
        optimizer[marks[trace.name_mask(r"^Optimizer\.")[trace.name[marks]]]] = True
    in_optimizer = nearest(host.parent, optimizer, events) >= 0
    launched = facts.device_time_of_call
    of_optimizer = outside[nearest(host.parent, optimizer, outside) >= 0] if len(outside) else outside
    return Remainder(
        operators=events[rest],
        calls=outside,
        host_ns=int(work[rest].sum()),
        host_total_ns=int(work[~dynamo].sum()),
        host_optimizer_ns=int(work[rest & in_optimizer].sum()),
        device_ns=int(launched[outside].sum()),
        device_total_ns=int(launched[calls].sum()),
        device_optimizer_ns=int(launched[of_optimizer].sum()),
    )
