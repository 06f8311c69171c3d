"""What a rank's device does by itself in a step: kernels and copies, communication left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lanewise.measure.distributed.own.own_context import Context, holds_host
from lanewise.measure.group_keys import combined
from lanewise.replay.undistort import COSTS
from lanewise.trace.groups import median_of_group
from lanewise.trace.intervals import covered, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanewise.measure.core import Core
    from lanewise.measure.distributed.own.own_context import WorkRows

__all__ = ["device_contexts", "device_work"]


def device_work(core: Core, contexts: dict[Context, int]) -> tuple[list[WorkRows], np.ndarray]:
    """Device work, and the contexts whose kernels all ran beside a collective; contexts that are new are added."""
    trace, graph = core.trace, core.graph
    nodes = np.flatnonzero(~graph.on_host & (graph.event >= 0))
    work = graph.event[nodes]
    communication = core.is_family("communication")[np.searchsorted(trace.device_work, work)]
    spinning = union(trace.start[work[communication]], trace.end[work[communication]])
    nodes, work = nodes[~communication], work[~communication]
    if len(nodes) == 0:
        return [], np.empty(0, np.int64)
    found, of_work = device_contexts(core, work)
    column = np.array([contexts.setdefault(one, len(contexts)) for one in found], dtype=np.int64)[of_work]
    step = np.clip(graph.step[nodes], 0, graph.steps - 1)
    spent = trace.duration[work].astype(np.float64)
    held = np.array([holds_host(one) for one in found], dtype=bool)[of_work]
    spent[held] += _put_ready(core, work[held])
    beside = covered(spinning, trace.start[work], trace.end[work]) > 0
    alone = np.full(len(contexts), np.nan)
    used, row = np.unique(column[~beside], return_inverse=True)
    if len(used):
        alone[used] = median_of_group(row, spent[~beside])[np.unique(row, return_index=True)[1]]
    # Beside a collective a kernel has a part of the device only: it counts with what it takes by itself.
    typical = alone[column]
    spent = np.where(beside & np.isfinite(typical), np.minimum(spent, typical), spent)
    return [(step, column, spent, np.ones(len(work)))], np.setdiff1d(column[beside], used)


def _put_ready(core: Core, work: np.ndarray) -> np.ndarray:
    """What the host puts ready before the device begins with what holds it, ns: since the call began and the device had
    done what came before."""
    trace = core.trace
    call = trace.links.launch_of(work)
    order = np.argsort(trace.end[trace.device_work], kind="stable")
    ended = trace.end[trace.device_work][order]
    last = np.searchsorted(ended, trace.start[work], side="right") - 1
    free = np.where(last >= 0, ended[np.maximum(last, 0)], 0)
    ready = trace.start[work] - np.maximum(trace.start[np.maximum(call, 0)], free)
    return np.where(call >= 0, np.maximum(ready - COSTS.call, 0.0), 0.0)


def device_contexts(core: Core, work: np.ndarray) -> tuple[list[Context], np.ndarray]:
    """Contexts of device operations, and which of these each operation has."""
    trace = core.trace
    kernel = trace.kind[work] == Kind.KERNEL
    sizes = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    size, copied = (
        _args(core, work, "kernel_args", sizes),
        _args(core, work, "copy_args", ("direction", "source", "destination")),
    )
    given = [np.where(kernel, one, -1) for one in size.of_work] + [np.where(kernel, -1, one) for one in copied.of_work]
    _, some, of_work = np.unique(combined(trace.name[work], kernel, *given), return_index=True, return_inverse=True)
    found: list[Context] = []
    for at in some.tolist():
        name = trace.name_of(int(work[at]))
        if kernel[at]:
            found.append(Context("kernel", name, inside="x".join(size.texts(at))))
        else:
            found.append(Context("copy", " ".join(copied.texts(at)) or name, until="device"))
    return found, of_work


class _Args(NamedTuple):
    """Arguments of device operations: the values that occur of each, and which of them each operation has, -1 for none."""

    values: list[np.ndarray]
    of_work: list[np.ndarray]

    def texts(self, at: int) -> list[str]:
        """Those of one operation."""
        each = zip(self.values, self.of_work, strict=True)
        return [str(values[which[at]]) for values, which in each if which[at] >= 0]


def _args(core: Core, work: np.ndarray, table: str, columns: Sequence[str]) -> _Args:
    rows = core.trace[table]
    row = np.full(len(core.trace), -1, dtype=np.int64)
    row[rows["event"]] = np.arange(len(rows["event"]))
    at = row[work]
    found = [np.unique(rows[name], return_inverse=True) for name in columns]
    none = np.full(len(work), -1, dtype=np.int64)
    return _Args(
        [values for values, _ in found],
        [np.where(at >= 0, which[np.maximum(at, 0)], -1) if len(which) else none for _, which in found],
    )
