"""Where the host stops to read device memory: shared by SYN101, SYN102 and SYN103."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.diagnose.select import climb, device_rows, enclosing, outermost
from lanewise.measure.core import remembered
from lanewise.measure.facts import Facts
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import Kind

__all__ = [
    "DATA_DEPENDENT",
    "SMALL_BYTES",
    "WRAPPERS",
    "Readbacks",
    "data_dependent",
    "find_readbacks",
    "host_events_inside",
]

SMALL_BYTES = 64 * 1024
"""Up to this size a copy to the host costs its latency, not its bytes."""

WRAPPERS = (
    "aten::item",
    "aten::is_nonzero",
    "aten::_local_scalar_dense",
    "aten::to",
    "aten::_to_copy",
    "aten::copy_",
    "aten::equal",
    "aten::Bool",
    "aten::Int",
    "aten::Float",
)
"""Operators that only wrap a readback or lead to a copy: their whole duration is spent on it."""

DATA_DEPENDENT = (
    r"^aten::(nonzero|nonzero_numpy|masked_select|_unique2?|unique_consecutive|unique_dim|repeat_interleave|bincount)$"
)


class Readbacks(NamedTuple):
    """Device-to-host copies that a host thread waits for, in steady steps; one entry per copy.

    Attributes:
        root: outermost operator that exists for this readback.
        call: the copy call. copy: the device event.
        bytes: payload, -1 if unknown.
        scalar: whether one value was asked for (`item`, `bool`, `tolist`).
        by_shape: whether an operator whose output size depends on data asked (SYN102).
    """

    root: np.ndarray
    call: np.ndarray
    copy: np.ndarray
    bytes: np.ndarray
    scalar: np.ndarray
    by_shape: np.ndarray

    def of(self, chosen: np.ndarray) -> Readbacks:
        """Those chosen by a mask."""
        return Readbacks(*(column[chosen] for column in self))


def host_events_inside(facts: Facts, roots: np.ndarray) -> np.ndarray:
    """Operators and calls below the roots."""
    host = np.flatnonzero(np.isin(facts.trace.kind, (Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)))
    return host[enclosing(facts, roots, host) >= 0]


@remembered
def data_dependent(facts: Facts) -> np.ndarray:
    """Which names are operators whose output size depends on data; bool per name."""
    return facts.trace.name_mask(DATA_DEPENDENT)


@remembered
def find_readbacks(facts: Facts) -> Readbacks:
    """Copies to the host with a blocking wait in the operator around them."""
    trace, host = facts.trace, facts.host
    rows = device_rows(facts, Kind.MEMCPY)
    rows = rows[(trace.links.launch[rows] >= 0) & (trace.links.operator[rows] >= 0)]
    copy = trace.device_work[rows]
    args = trace["copy_args"]
    at = trace.lookup("copy_args", copy)
    known = at >= 0
    to_host = np.zeros(len(rows), dtype=bool)
    to_host[known] = args["direction"][at[known]] == "DtoH"
    size = np.full(len(rows), -1, dtype=np.int64)
    size[known] = args["bytes"][at[known]]
    operator = trace.links.operator[rows]
    waits = to_host & (host.wait_inside[operator] > 0)
    operator, copy, size, call = operator[waits], copy[waits], size[waits], trace.links.launch[rows[waits]]

    wrapper = mask_of(len(trace.names), trace.name_ids(*WRAPPERS))
    by_shape = data_dependent(facts)
    root = climb(facts, operator, wrapper | by_shape)
    shaped = by_shape[trace.name[root]]
    scalar = np.isin(trace.name[operator], trace.name_ids("aten::_local_scalar_dense"))
    # `nonzero` and a boolean index both copy: the copies of one root are one readback.
    if len(root):
        keep = np.isin(root, outermost(facts, np.unique(root)))
        _, first = np.unique(root, return_index=True)
        once = mask_of(len(root), first)
        keep &= once
    else:
        keep = np.zeros(0, dtype=bool)
    return Readbacks(root[keep], call[keep], copy[keep], size[keep], scalar[keep], shaped[keep])
