"""How much the duration of one and the same kernel launch varies from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lanewise.measure.columns import Columns
from lanewise.trace.intervals import covered, union
from lanewise.trace.schema import Kind

if TYPE_CHECKING:
    from lanewise.measure.core import Core

__all__ = ["kernel_variance"]


def kernel_variance(facts: Core) -> Columns:
    """One row per kernel position that every steady step repeats.

    A kernel is the same only if name, grid, block, shared memory **and position in the step** agree: persistent kernels
    keep one name and grid for many shapes. Samples that overlap communication or a copy are left out, since those slow
    a kernel down by themselves.

    Columns: `event` (a sample), `samples`, `median`, `p95`, `max` (ns), `share` (of the kernel time of these steps).
    """
    trace = facts.trace
    kernels = trace.of(Kind.KERNEL)
    kernels = facts.steady_events(kernels)
    empty = np.empty(0, np.int64)
    nothing = Columns({"event": empty, "samples": empty, "median": empty, "p95": empty, "max": empty, "share": empty})
    if len(kernels) == 0:
        return nothing
    step = trace.steps.of_event[kernels]
    launch = trace.links.launch_of(kernels)
    launched = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], trace.start[kernels])
    order = np.lexsort((trace.start[kernels], launched, step))
    kernels, step = kernels[order], step[order]
    rows, count = np.unique(step, return_counts=True)
    sizes, frequency = np.unique(count, return_counts=True)
    size = int(sizes[np.argmax(frequency)])
    chosen = kernels[np.isin(step, rows[count == size])].reshape(-1, size)

    same = (trace.name[chosen] == trace.name[chosen[0]]).all(axis=0)
    args = trace["kernel_args"]
    if len(args["event"]):
        row = trace.lookup("kernel_args", chosen.ravel()).reshape(chosen.shape)
        for column in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_memory"):
            value = np.where(row >= 0, args[column][np.maximum(row, 0)], -1)
            same &= (value == value[0]).all(axis=0)
    chosen = chosen[:, same]
    if chosen.size == 0:
        return nothing

    duration = trace.duration[chosen].astype(np.float64)
    work = trace.device_work
    others = work[facts.is_family("communication") | (trace.kind[work] == Kind.MEMCPY)]
    flat = chosen.ravel()
    overlap = covered(union(trace.start[others], trace.end[others]), trace.start[flat], trace.end[flat])
    overlap = overlap.reshape(chosen.shape)
    duration[overlap > 0] = np.nan
    samples = np.count_nonzero(~np.isnan(duration), axis=0)
    chosen, duration, samples = chosen[:, samples > 0], duration[:, samples > 0], samples[samples > 0]
    if chosen.size == 0:
        return nothing
    return Columns(
        {
            "event": chosen[0],
            "samples": samples,
            "median": np.nanmedian(duration, axis=0),
            "p95": np.nanpercentile(duration, 95, axis=0),
            "max": np.nanmax(duration, axis=0),
            "share": np.nansum(duration, axis=0) / max(1.0, float(np.nansum(duration))),
        }
    )
