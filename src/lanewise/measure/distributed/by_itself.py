"""The run of a rank that no other keeps waiting: without the profiler, its communication moving data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lanewise.measure.core import Core
from lanewise.replay.graph import StepGraph
from lanewise.replay.undistort import undistort

__all__ = ["ByItself", "by_itself"]


@dataclass(frozen=True, eq=False)
class ByItself:
    """A rank that waits for no other.

    Attributes:
        graph: its run. communication, own: nodes that are device operations: those that exchange data, and the others.
    """

    graph: StepGraph
    communication: np.ndarray
    own: np.ndarray


def by_itself(core: Core, moving: Mapping[int, float] | None = None) -> ByItself:
    """A rank whose communication takes what moving the data takes.

    Args:
        core: the rank.
        moving: that time, ns, by when the rank's own part begins, ns; of what is not in it, the usual time. None for no
            time at all.
    """
    graph = undistort(core.graph)
    nodes = np.flatnonzero(~graph.on_host & (graph.event >= 0))
    event = graph.event[nodes]
    communicates = core.is_family("communication")[np.searchsorted(core.trace.device_work, event)]
    mine = nodes[communicates]
    duration = graph.duration.copy()
    known = moving or {}
    usual = float(np.median(list(known.values()))) if known else 0.0
    duration[mine] = [known.get(start, usual) for start in core.trace.start[event[communicates]].tolist()]
    return ByItself(replace(graph, duration=duration), mine, nodes[~communicates])
