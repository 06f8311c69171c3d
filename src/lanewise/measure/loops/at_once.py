"""What the device's work of a loop takes where one call does it for all rounds."""

from __future__ import annotations

import math

import numpy as np

from lanewise.measure.columns import sums
from lanewise.measure.facts import Facts
from lanewise.measure.kernel.flops import work_of
from lanewise.measure.loops.sequences import Repeat

__all__ = ["KERNEL_AT_LEAST_NS", "products_at_once"]

KERNEL_AT_LEAST_NS = 1_500
"""A kernel that does nothing takes about this long on a data-centre card."""

# Of the tensor cores' peak, what a large product reaches.
_REACHABLE = 0.70


def products_at_once(facts: Facts, events: np.ndarray, repeats: list[Repeat]) -> float:
    """How much longer than the work of its kernels a loop with matrix products takes at once, ns, below zero where it is
    shorter: at the rate that a large product reaches, or at the memory's. 0 where shapes or card are not known."""
    trace, peak = facts.trace, facts.device.peak
    heavy = facts.matrix_names[trace.name[events]]
    repeats = [repeat for repeat in repeats if heavy[repeat.first : repeat.last + 1].any()]
    if peak is None or not repeats:
        return 0.0
    calls = facts.launches.call
    owner = facts.host.outermost_operator[calls]
    spent = sums(owner[owner >= 0], facts.device_time_of_call[calls[owner >= 0]], len(trace))
    longer = 0.0
    for repeat in repeats:
        for at in range(repeat.first, repeat.first + repeat.period):
            work = work_of(trace.name_of(int(events[at])), facts.signatures.of(int(events[at])))
            rate = peak.flop_rate(work.dtype) if work is not None and work.kind == "matmul" else math.inf
            if work is None or not rate:
                continue
            whole = repeat.count * max((work.flops or 0.0) / (_REACHABLE * rate), work.bytes / peak.bandwidth) * 1e9
            first, *later = spent[events[at : repeat.last + 1 : repeat.period]].tolist()
            longer += min(sum(later), max(0.0, whole - first)) - sum(max(0.0, ns - KERNEL_AT_LEAST_NS) for ns in later)
    return longer
