"""Operators whose own time is a library at work before its launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["opaque_operators"]

_FEW_LAUNCHES = 4
_BEYOND_BOOKKEEPING = 10


def opaque_operators(facts: Core, *, above_ns: int) -> np.ndarray:
    """Operators of steady steps that launch one kernel by themselves and spend more than `above_ns` of their own time
    on it, or two to four and ten times as much on each (own time re-based on the step without the profiler, where that
    is known); compiling and the profiler's stalls left out."""
    trace, host = facts.trace, facts.host
    calls = facts.launches.call
    operator = trace.kind == Kind.OPERATOR
    owner = nearest(host.parent, operator, calls)
    counts = np.bincount(owner[owner >= 0], minlength=len(trace))
    # Several launches are work of the operator's own, unless their preparation takes beyond any bookkeeping.
    limit = np.where(counts == 1, above_ns, _BEYOND_BOOKKEEPING * above_ns * counts)
    few = (counts >= 1) & (counts <= _FEW_LAUNCHES) & operator
    single = np.flatnonzero(few & (host.self_time * facts.steps.host_scale > limit))
    single = facts.steady_events(single)
    compiling = mask_of(len(trace), facts.compile_rows)
    single = single[nearest(host.parent, compiling, single, include_self=True) < 0]
    stalls = facts.classes.stalls
    for low, high in zip(stalls.start.tolist(), stalls.end.tolist(), strict=True):
        single = single[(trace.end[single] <= low) | (trace.start[single] >= high)]
    # Containers of Python code (compiled regions, autograd functions) are not libraries.
    library = trace.name_mask(r"^(?:aten|cudnn|mkldnn|flash_attn\w*|xformers\w*|torchvision|quantized)::")
    return single[library[trace.name[single]]] if len(single) else single
