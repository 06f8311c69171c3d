"""Launches: what the host paid to start device work, and how long the work then waited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.measure.host import Host
from lanewise.trace.groups import distinct
from lanewise.trace.model import Trace

__all__ = ["Launches", "measure_launches"]


@dataclass(frozen=True, eq=False)
class Launches:
    """Launches of device work.

    Attributes:
        device_start_delay: start of each device op less the *start* of its launch, clipped at 0; -1 without a launch;
            ns, shape (device,). From the start, because a pageable copy runs inside its own call (trap L3).
        call: the API calls that launched something, shape (calls,).
        host_cost: duration of the outermost operator around each of these calls, shared equally among the calls inside
            it, without the waiting; of the call itself where no operator is around it; ns, shape (calls,).
    """

    device_start_delay: np.ndarray
    call: np.ndarray
    host_cost: np.ndarray


def measure_launches(trace: Trace, host: Host) -> Launches:
    """Measure the launches of a trace."""
    device = trace.device_work
    launch = trace.links.launch
    delay = np.full(len(device), -1, dtype=np.int64)
    linked = launch >= 0
    delay[linked] = np.maximum(trace.start[device[linked]] - trace.start[launch[linked]], 0)

    call = distinct(launch[linked], len(trace))
    owner = host.outermost_operator[call]
    owner = np.where(owner >= 0, owner, call)
    work = np.maximum(trace.duration[owner] - host.wait_inside[owner], 0)
    launches_of = np.bincount(owner, minlength=1)
    return Launches(delay, call, work // launches_of[owner])
