"""Which kernels are the same kernel doing the same work, and what they take together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.measure.group_keys import combined
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["KernelGroup", "kernel_groups"]


# No rule speaks of a kernel below 1 % of the time; a program with more kinds of kernels than this has none beyond it.
_MOST = 4_000


class KernelGroup(NamedTuple):
    """Kernels of steady steps with one identity: name, grid, block, shared memory, and the shapes of their operator.

    Attributes: rows: rows of `Trace.device_work`. example: one kernel event. arguments: its row of `kernel_args`, or
        -1. call: the call that launched it, or -1. operator: its innermost operator, or -1. total: time of all of
        them, ns.
    """

    rows: np.ndarray
    example: int
    arguments: int
    call: int
    operator: int
    total: int


def kernel_groups(facts: Core) -> list[KernelGroup]:
    """Kernels of the steady steps by identity, the most expensive first (the first few thousand of them);
    communication is left out."""
    trace = facts.trace
    work = trace.device_work
    rows = np.flatnonzero(
        (trace.kind[work] == Kind.KERNEL) & facts.in_steady_step[work] & ~facts.is_family("communication")
    )
    if len(rows) == 0:
        return []
    events = trace.device_work[rows]
    args = trace["kernel_args"]
    at = trace.lookup("kernel_args", events)
    columns = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_memory")
    # Name and grid are not enough: persistent kernels keep one grid for many shapes (trace-format section 10).
    operator = trace.links.operator[rows]
    dims = trace.lookup("operator_args", np.maximum(operator, 0))
    shape = trace["operator_args"]["dims_text"]
    values = [np.where(at >= 0, args[c][np.maximum(at, 0)], -1) for c in columns] if len(args["event"]) else []
    if len(shape):
        values.append(np.where((operator >= 0) & (dims >= 0), shape[np.maximum(dims, 0)].astype(np.int64), -1))
    key = combined(trace.name[events], *values)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(group, weights=trace.duration[events]).astype(np.int64)
    by_group = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[by_group], np.arange(len(first) + 1))
    launch = trace.links.launch[rows]
    return [
        KernelGroup(
            rows[by_group[bounds[i] : bounds[i + 1]]],
            int(events[first[i]]),
            int(at[first[i]]),
            int(launch[first[i]]),
            int(operator[first[i]]),
            int(total[i]),
        )
        for i in np.argsort(-total, kind="stable")[:_MOST].tolist()
    ]
