"""What the step of a job would be with other links, with its communication hidden, with even devices: ranks replayed.

In a job that goes in step every rank's step is that of the slowest. A few ranks stand for all: the late ones, the one whose
device has most to do, and the one in the middle. Their collectives take what moving the data takes, as no rank would wait
if all were there; what each change gives the slowest of them is what it gives the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lanewise.measure.core import Core
from lanewise.measure.distributed.by_itself import by_itself
from lanewise.measure.distributed.late_ranks import Job
from lanewise.measure.distributed.together.matched_communications import Matched
from lanewise.replay.graph import StepGraph
from lanewise.replay.simulate import simulate

__all__ = ["WhatIf", "what_ifs"]

_LEAST = 0.005
"""A change that gives or costs a smaller share of the step is left out."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change: what, the step with it, ns; whether that is the least that it could be."""

    what: str
    step_ns: float
    bound: bool = False


def what_ifs(job: Job, together: Matched, core_of: Callable[[int], Core]) -> list[WhatIf]:
    """What the step would be, the largest gain first; none for a job without devices or with nothing in common.

    Args:
        job, together: its ranks, and what they did together. core_of: reads the trace of a row.
    """
    if not job.device_ns.any() or not (together.collectives or together.transfers):
        return []
    ranks = [_Replayed.of(core_of(row), together.moving(row), job.host_factor[row], row) for row in _stand_for_all(job)]
    base = max(one.step() for one in ranks)
    mean = float(job.device_ns.mean())
    found = [
        WhatIf("links twice as fast", max(one.step(communication=0.5) for one in ranks)),
        WhatIf("links half as fast", max(one.step(communication=2.0) for one in ranks)),
        WhatIf("communication wholly hidden", max(one.step(communication=0.0) for one in ranks), bound=True),
        WhatIf(
            "device work evenly on all ranks",
            max(
                one.step(device=mean / float(job.device_ns[one.row]) if job.device_ns[one.row] else 1.0)
                for one in ranks
            ),
        ),
    ]
    step = job.step_ns if job.timed else base
    told = [replace(one, step_ns=max(0.0, step + one.step_ns - base)) for one in found]
    return sorted((one for one in told if abs(one.step_ns - step) >= _LEAST * step), key=lambda one: one.step_ns)


def _stand_for_all(job: Job) -> list[int]:
    alone = np.array([one.alone_ns for one in job.ranks])
    middle = int(np.argsort(alone, kind="stable")[len(alone) // 2])
    return list(dict.fromkeys([*(late.index for late in job.late[:1]), int(np.argmax(job.device_ns)), middle]))


@dataclass(frozen=True, eq=False)
class _Replayed:
    """A rank whose communication takes what moving the data takes."""

    row: int
    graph: StepGraph
    communication: np.ndarray
    own: np.ndarray

    @staticmethod
    def of(core: Core, moving: Mapping[int, float], host_factor: float, row: int) -> _Replayed:
        rank = by_itself(core, moving)
        gap = np.where(rank.graph.on_host, rank.graph.gap / host_factor, rank.graph.gap)
        return _Replayed(row, replace(rank.graph, gap=gap), rank.communication, rank.own)

    def step(self, *, communication: float = 1.0, device: float = 1.0) -> float:
        """The step, ns, with these times as many times as long."""
        duration = self.graph.duration.copy()
        duration[self.communication] *= communication
        duration[self.own] *= device
        return simulate(replace(self.graph, duration=duration)).step_ns
