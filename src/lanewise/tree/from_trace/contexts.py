"""Who is inside whom: the host events of a trace as one forest of rows.

Time nesting alone is not enough. A profiler puts the frames of several background threads on one lane, and its own step
annotation opens inside one frame and closes inside another. The id of the Python parent, where it was recorded,
decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lanewise.trace.model import Trace
from lanewise.trace.nesting import nearest
from lanewise.trace.schema import Kind
from lanewise.tree.model import NodeKind

__all__ = ["HEAD_MARK", "LOST_MARK", "Contexts", "find_contexts"]

HEAD_MARK = "<launched before the recording>"
LOST_MARK = "<launch not recorded>"

_STEP_NAME = r"^ProfilerStep#\d+$"
_LOADER = re.compile(r"pt_data_worker|pin_memory|dataloader", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Contexts:
    """Rows that will become nodes: host events, then one row per host lane, then two marks for work without a launch.

    Attributes:
        event: event of each row, -1 for the rows after the events, shape (k,).
        row: row of each event, -1 for events that make no context, shape (events,).
        parent: row around each row, -1 for lanes and marks, shape (k,).
        kind: `NodeKind` of each row, shape (k,).
        root_name: names of the rows without an event, in order.
        root: row of each lane, -1 for device lanes, shape (lanes,).
        head, lost: rows of the two marks.
    """

    event: np.ndarray
    row: np.ndarray
    parent: np.ndarray
    kind: np.ndarray
    root_name: tuple[str, ...]
    root: np.ndarray
    head: int
    lost: int

    @property
    def events(self) -> int:
        """Number of rows that are events."""
        return len(self.event) - len(self.root_name)

    @property
    def inner(self) -> np.ndarray:
        """Parents among the event rows only: -1 where a row stands directly on its lane. Shape (events rows,)."""
        count = self.events
        return np.where(self.parent[:count] < count, self.parent[:count], -1)


def find_contexts(trace: Trace) -> Contexts:
    """The rows of a trace and their parents."""
    kind_of_event = _node_kinds(trace)
    event = np.flatnonzero(kind_of_event >= 0)
    count = len(event)
    row = np.full(len(trace), -1, dtype=np.int64)
    row[event] = np.arange(count)
    above = _parents(trace, event, kind_of_event >= 0)

    host_lanes = np.flatnonzero(trace["lanes"]["side"] == "host")
    root = np.full(len(trace["lanes"]["side"]), -1, dtype=np.int64)
    root[host_lanes] = count + np.arange(len(host_lanes))
    parent = np.where(above >= 0, row[above], root[trace.lane[event]])
    names = [*_roles(trace, host_lanes), HEAD_MARK, LOST_MARK]
    kinds = [NodeKind.THREAD] * len(host_lanes) + [NodeKind.MARK] * 2
    return Contexts(
        event=np.concatenate((event, np.full(len(names), -1, dtype=np.int64))),
        row=row,
        parent=np.concatenate((parent, np.full(len(names), -1, dtype=np.int64))),
        kind=np.concatenate((kind_of_event[event], np.array(kinds, dtype=np.int8))),
        root_name=tuple(names),
        root=root,
        head=count + len(host_lanes),
        lost=count + len(host_lanes) + 1,
    )


def _node_kinds(trace: Trace) -> np.ndarray:
    """`NodeKind` of every event that makes a context, -1 for the others. Shape (events,).

    Plain API calls make none: their host time is their operator's. Calls that wait and graph launches do, because one
    looks for them. Step marks make none: a step is a window of time, not a place in the program.
    """
    kinds = np.full(len(trace), -1, dtype=np.int8)
    on_host = (trace["lanes"]["side"] == "host")[trace.lane] if len(trace) else np.empty(0, dtype=bool)
    kinds[(trace.kind == Kind.OPERATOR) & on_host] = NodeKind.OPERATOR
    kinds[(trace.kind == Kind.ANNOTATION) & on_host] = NodeKind.ANNOTATION
    frames = np.flatnonzero((trace.kind == Kind.PYTHON) & on_host)
    module = trace.name_series.str.starts_with("nn.Module: ").to_numpy()
    kinds[frames] = np.where(module[trace.name[frames]], NodeKind.MODULE, NodeKind.FRAME)
    kinds[trace.links.calls("wait")] = NodeKind.WAIT
    kinds[trace.links.calls("graph_launch")] = NodeKind.GRAPH
    step = trace.name_mask(_STEP_NAME)[trace.name] & ((kinds == NodeKind.ANNOTATION) | (kinds == NodeKind.OPERATOR))
    kinds[step] = -1
    return kinds


def _parents(trace: Trace, event: np.ndarray, is_node: np.ndarray) -> np.ndarray:
    """Event around each given event that is a node, or -1."""
    parent = nearest(trace.nesting.parent, is_node, event)
    frames = trace["python_args"]
    at = np.searchsorted(event, frames["event"])
    known = (at < len(event)) & (frames["python_id"] >= 0)
    known[known] = event[at[known]] == frames["event"][known]
    child, at = frames["event"][known].astype(np.int64), at[known]
    if len(child) == 0:
        return parent
    recorded, found = _recorded_parents(trace, child, frames["python_id"][known], frames["parent_id"][known])
    by_time = nearest(trace.nesting.parent, trace.kind == Kind.PYTHON, child)
    # Where both agree the parent by time stays: an annotation or operator may stand between the two frames.
    differs = found & (by_time != recorded)
    parent[at[differs]] = recorded[differs]
    return parent


def _recorded_parents(
    trace: Trace, child: np.ndarray, own: np.ndarray, above: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Event of the recorded Python parent of each frame (-1 for a root), and whether it can be believed.

    A parent that begins after its child is refused: ids come from the file, and a cycle must not be possible. So is one
    on another lane: for the first frame of a thread, as of a hook that the autograd engine calls, the profiler names
    whatever frame the main thread was in.
    """
    order = np.argsort(own, kind="stable")
    at = np.minimum(np.searchsorted(own[order], above), len(order) - 1)
    candidate = child[order[at]]
    exists = (own[order[at]] == above) & (above >= 0)
    rank = np.empty(len(trace), dtype=np.int64)
    rank[trace.nesting.order] = np.arange(len(trace))
    earlier = (trace.start[candidate] < trace.start[child]) | (
        (trace.start[candidate] == trace.start[child]) & (rank[candidate] < rank[child])
    )
    good = exists & earlier & (trace.lane[candidate] == trace.lane[child])
    return np.where(good, candidate, -1), good | (above < 0)


def _roles(trace: Trace, lanes: np.ndarray) -> list[str]:
    """What each host lane is for. Thread ids change from run to run and are not part of a context."""
    labels = trace["lanes"]["label"][lanes].tolist()
    size = len(trace["lanes"]["side"])
    work = np.bincount(trace.lane[trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.DRIVER)], minlength=size)
    backward_name = trace.name_series.str.starts_with("autograd::engine::evaluate_function").to_numpy()
    backward = np.zeros(size, dtype=np.int64)
    operators = trace.of(Kind.OPERATOR)
    np.add.at(backward, trace.lane[operators], backward_name[trace.name[operators]])
    autograd = {
        lane for lane, label in zip(lanes.tolist(), labels, strict=True) if "pt_autograd" in label
    }  # fmt: skip
    main = _main_lane(trace, lanes, work, autograd)
    roles: list[str] = []
    for lane, label in zip(lanes.tolist(), labels, strict=True):
        if lane == main:
            roles.append("main thread")
        elif lane in autograd or backward[lane]:
            roles.append("autograd threads")
        elif _LOADER.search(label):
            roles.append("data loader threads")
        else:
            roles.append("other threads")
    return roles


def _main_lane(trace: Trace, lanes: np.ndarray, work: np.ndarray, autograd: set[int]) -> int:
    steps = trace.steps
    if steps.recorded and len(steps) and int(steps.event[0]) >= 0:
        return int(trace.lane[steps.event[0]])
    others = [lane for lane in lanes.tolist() if lane not in autograd]
    return max(others, key=lambda lane: int(work[lane]), default=-1)
