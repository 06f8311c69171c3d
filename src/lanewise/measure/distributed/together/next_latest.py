"""How much of what a late rank gains its job gains: as far as the rank that is then the last.

Hosts that do the same differ, by a tenth and more on one machine, and from one stretch of a run to the next. How early
the other ranks are is known from the steps that the recorder timed without the profiler: at the end of each it knows how
long the device is behind the host, and for all ranks but the last that is a wait for the last one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lanewise.measure.distributed.late_ranks import Job

__all__ = ["gain_of_job"]


def gain_of_job(job: Job, row: int, gains: Mapping[int, float], *, device_ns: float) -> float:
    """What a step of the job gains if its late ranks gain that, ns; as much as the rank of a row where the others' steps
    were not timed.

    Args:
        job: its ranks. row: the latest. gains: by row, of all late ones.
        device_ns: by how much less its device has to do then.
    """
    mine, gain = job.ranks[row], gains[row]
    steps = len(mine.own_timed_ns)
    others = [
        np.maximum(np.array(one.own_timed_ns) - gains.get(other, 0.0), 0.0)
        for other, one in enumerate(job.ranks)
        if other != row and len(one.own_timed_ns) == steps
    ]
    if not steps or not others:
        return gain
    own, behind = np.array(mine.own_timed_ns), np.array(mine.behind_ns)
    step = own + behind
    # What the device does after the last host has come, it does after whichever comes last.
    after = np.maximum(behind - device_ns, 0.0)
    without = np.maximum(step - gain, np.max(others, axis=0) + after)
    return float(np.mean(np.maximum(step - without, 0.0)))
