"""`StepGraph`: a run of steady steps as nodes in time order, each waiting for its own lane and at most two others.

    a host node      work of a host thread up to a point: a launch, the end of a wait, the beginning of a step
    a device node    a kernel, copy or set on its stream

A node begins once the node before it on its lane has ended and `gap` has passed, and once each node it depends on has
ended and a lag has passed; it then takes `duration`. Gaps and lags are those of the recording, so that replaying the graph
unchanged gives the recorded times back. Recorded are: the order on a lane, launch -> operation. Inferred, as traces do
not say it: which operation a wait waited for, which stream held another one up (or waits for it, at a communication), which
launch was held back by a full queue, and which threads take turns (a backward pass and the thread that waits for it are
one line of host work).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lanewise.trace.intervals import Union
    from lanewise.trace.model import Trace

__all__ = ["ROWS", "StepGraph"]

ROWS: tuple[str, ...] = ("operator", "call", "frame", "annotation")
"""Kinds of recorded rows that cost the host time while it is profiled, in the order of `StepGraph.rows`."""


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Nodes in an order in which each comes after all that it depends on; n nodes, all times ns as float64.

    Attributes:
        trace: the trace it was built from.
        steps: number of steps in the run.
        lane: lane of each node: host lines first, then streams.
        host_lines: number of host lines.
        event: what the node stands for: the launch or wait that ends a host node, the device operation; -1 for a step mark.
        gap: host nodes: the host's own work since the node before; device nodes: pause since the operation before.
        duration: device time; 0 for host nodes.
        dependency, lag: node that must have ended (-1 for none; -2 - i for node i of the round before), how long before.
        second, second_lag: another one.
        begin, end: what a host node's work spans in the recording (`end` is where a wait began), or a device operation.
        own: part of a host node's `gap` that is the wait call itself.
        profiler: part of a host node's `gap` that is known to be the profiler's own work.
        step: step of the run, from 0.
        rows: recorded rows that begin in a host node's work, by ROWS, shape (n, 4).
        line_of_lane: host line of each lane of the trace, -1 for lanes that neither launch nor wait.
        unrecorded: when each host line runs code in which nothing is recorded: none of it is the cost of recording.
        rows_left: share of the rest of a host node's work that is left without the cost of recording.
        ready: when each lane is free at first: work from before the run may still hold it; ns from the run's beginning.
        past: when each node of the round before ended where the first round waits for it, ns from the run's beginning.
        recorded_ns: what the run took in the recording.
        head: when a single step begins, ns from the run's beginning: until then the device does work from before it.
    """

    trace: Trace
    steps: int
    lane: np.ndarray
    host_lines: int
    event: np.ndarray
    gap: np.ndarray
    duration: np.ndarray
    dependency: np.ndarray
    lag: np.ndarray
    second: np.ndarray
    second_lag: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    own: np.ndarray
    profiler: np.ndarray
    step: np.ndarray
    rows: np.ndarray
    line_of_lane: np.ndarray
    unrecorded: dict[int, Union]
    rows_left: np.ndarray
    ready: np.ndarray
    past: np.ndarray
    recorded_ns: float
    head: float

    def __len__(self) -> int:
        return len(self.lane)

    def edges_of(self, line: int) -> tuple[np.ndarray, np.ndarray]:
        """When the recorded rows of a host line begin, and when they end, each in order, ns."""
        if line not in self._edges:
            rows = np.flatnonzero(self.line_of_lane[self.trace.lane] == line)
            self._edges[line] = np.sort(self.trace.start[rows]), np.sort(self.trace.end[rows])
        return self._edges[line]

    @cached_property
    def _edges(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return {}

    @property
    def on_host(self) -> np.ndarray:
        """Which nodes are host work, bool, shape (n,)."""
        return self.lane < self.host_lines
