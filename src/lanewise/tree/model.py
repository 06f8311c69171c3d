"""`Tree`: the contexts of a program as columns, with what each of them cost.

A node is a context: the path from the thread root through Python frames, modules, annotations and operators down to a
kernel or copy. Equal contexts are one node, however often they ran, so millions of events become thousands of nodes.

Metrics are **exclusive**: what a node cost itself, without its children. Device time lies on the leaves (kernels,
copies and sets, or the parts of a kernel where it was sampled) and nowhere else, which is why every view of a tree has
the same total. `Tree.inclusive` adds up subtrees.

A tree is immutable, and a view of a tree is a tree again (see `lanewise.tree.views`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.trace.frames import Frame, frame_at
from lanewise.tree.forest import depths, subtree_sums
from lanewise.tree.watching.watched import Watched

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "COMBINE",
    "INSIDE",
    "KIND_NAMES",
    "METRICS",
    "PHASES",
    "NodeKind",
    "Phase",
    "Tree",
    "TreeInfo",
    "identity_keys",
    "identity_parts",
]


class NodeKind:
    """Values of `Tree.kind`."""

    THREAD = 0
    FRAME = 1
    MODULE = 2
    ANNOTATION = 3
    OPERATOR = 4
    GRAPH = 5
    WAIT = 6
    KERNEL = 7
    COPY = 8
    SET = 9
    MARK = 10
    LOOP = 11
    LINE = 12
    STALL = 13


KIND_NAMES: tuple[str, ...] = (
    "thread", "frame", "module", "annotation", "operator", "graph", "wait", "kernel", "copy", "set", "mark",
    "loop", "line", "stall",
)  # fmt: skip

LEAVES = (NodeKind.KERNEL, NodeKind.COPY, NodeKind.SET)
INSIDE = (NodeKind.LOOP, NodeKind.LINE, NodeKind.STALL)
"""Parts of a kernel."""


_TEXT_BITS = 26


def identity_keys(kind: np.ndarray, phase: np.ndarray, name: np.ndarray, detail: np.ndarray) -> np.ndarray:
    """One int64 for each (kind, phase, name, detail); sorting by it sorts by these, in this order.

    ValueError for 67 million texts or more, which no trace has.
    """
    if max(name.max(initial=0), detail.max(initial=0)) >= 1 << _TEXT_BITS:
        raise ValueError("too many distinct names")
    what = kind.astype(np.int64) << 3 | phase.astype(np.int64)
    return (what << 2 * _TEXT_BITS) | (name.astype(np.int64) << _TEXT_BITS) | detail.astype(np.int64)


def identity_parts(key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kind, phase, name and detail of keys made by `identity_keys`."""
    text = (1 << _TEXT_BITS) - 1
    what = key >> 2 * _TEXT_BITS
    return what >> 3, what & 7, key >> _TEXT_BITS & text, key & text


class Phase:
    """Values of `Tree.phase`."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    OPTIMIZER = 4
    DATA = 5
    COMMUNICATION = 6


PHASES: tuple[str, ...] = (
    "other", "forward", "backward", "recompute", "optimizer", "data loading", "communication",
)  # fmt: skip

METRICS: dict[str, tuple[str, str]] = {
    "device": ("ns", "Time of kernels, copies and sets."),
    "count": ("", "Kernels, copies and sets."),
    "shortest": ("ns", "The shortest of them; 0 if there are none."),
    "longest": ("ns", "The longest of them."),
    "squares": ("ns2", "Sum of the squares of their durations (a float): gives the standard deviation."),
    "bytes": ("bytes", "Payload of copies and sets."),
    "gap": ("ns", "Time that their stream was idle before each of them, since its previous work."),
    "idle": ("ns", "Time that the whole device was idle before each of them."),
    "delay": ("ns", "From the start of the launch to the start of the work."),
    "calls": ("", "How often the context was entered on the host."),
    "host": ("ns", "Host time spent in the context itself."),
    "launches": ("", "API calls that enqueue device work."),
    "allocated": ("bytes", "Device memory that it allocated (host memory where the trace has no device)."),
    "allocations": ("", "Allocations."),
}
"""Stored metrics with unit and meaning."""

COMBINE: dict[str, str] = {"shortest": "min", "longest": "max"}
"""Metrics that are not sums, and how equal contexts combine them."""


@dataclass(frozen=True)
class TreeInfo:
    """What a tree was made from.

    Attributes:
        source: file name of the trace, without its directories.
        producer: what built it.
        placement: "ran" where backward operators stand where they ran, "forward" under their forward operator.
        steps: numbers of the recorded steps in it; empty if the trace marks none.
        runs: recordings of the same steps merged into it. trees: all trees merged into it.
        device_total: device time of the trace (the part selected), ns.
        unlinked: device work without a known launch, number of kernels, copies and sets.
        backward: backward operators with a sequence number, linked: those whose forward operator is known.
        accumulated: gradient accumulations placed beside the backward operator that ran before them.
        modules: where module paths come from: "recorded", "known shapes", "positions" or "none".
        frames: whether Python frames were recorded.
        truncated: contexts merged into `<truncated>` because of the node limit.
        devices: device names.
        versions: of torch, CUDA and so on, as far as the trace says.
        filters: what was selected when it was built.
        watched: how it was collected, if a running program collected it; None if it was built from a trace.
    """

    source: str = ""
    producer: str = ""
    placement: str = "ran"
    steps: tuple[int, ...] = ()
    runs: int = 1
    trees: int = 1
    device_total: int = 0
    unlinked: int = 0
    backward: int = 0
    linked: int = 0
    accumulated: int = 0
    modules: str = "none"
    frames: bool = False
    truncated: int = 0
    devices: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict[str, str])
    filters: dict[str, str] = field(default_factory=dict[str, str])
    watched: Watched | None = None

    @property
    def step_count(self) -> int:
        """Steps in it; 0 if none are marked."""
        return self.watched.steps_watched if self.watched is not None else len(self.steps)


class Tree:
    """A calling-context tree; see the module.

    Attributes:
        parent: row of each node's parent, or -1; parents come before their children.
        kind: one of `NodeKind`.
        phase: one of `Phase`.
        name, detail: rows of `strings`. The detail is the class of a module, the direction of a copy, the line that a
            frame stood in (`line 14`) where lines are told apart, else "".
        forward: the node of the forward operator that a backward operator belongs to, or -1; it comes before.
        strings: the texts; row 0 is "". Untrusted.
        metrics: columns of `METRICS`, int64 (`squares` float64), one value per node.
        info: what the tree was made from.
    """

    def __init__(
        self,
        *,
        parent: np.ndarray,
        kind: np.ndarray,
        phase: np.ndarray,
        name: np.ndarray,
        detail: np.ndarray,
        forward: np.ndarray,
        strings: Sequence[str],
        metrics: Mapping[str, np.ndarray],
        info: TreeInfo,
    ) -> None:
        self.parent = parent.astype(np.int64)
        self.kind = kind.astype(np.uint8)
        self.phase = phase.astype(np.uint8)
        self.name = name.astype(np.int64)
        self.detail = detail.astype(np.int64)
        self.forward = forward.astype(np.int64)
        self.strings: Sequence[str] = strings
        self.metrics: Mapping[str, np.ndarray] = {name: metrics[name] for name in METRICS}
        self.info = info
        here = np.arange(len(self.parent))
        if (self.parent >= here).any() or (self.forward >= here).any():
            raise ValueError("a node must come after its parent and after its forward operator")
        for array in (self.parent, self.kind, self.phase, self.name, self.detail, self.forward, *self.metrics.values()):
            if len(array) != len(here):
                raise ValueError("columns differ in length")
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.parent)

    def __repr__(self) -> str:
        return f"<Tree {self.info.source or 'in memory'}: {len(self):,} nodes, {self.info.device_total:,} ns>"

    def label(self, node: int) -> str:
        """Name of a node."""
        return self.strings[int(self.name[node])]

    def python_frame(self, node: int) -> Frame:
        """File, line and function of a node that is a Python frame: the line that it stood in, where the tree has it."""
        return frame_at(self.label(node), self.strings[int(self.detail[node])])

    @cached_property
    def depth(self) -> np.ndarray:
        """Number of nodes above each node."""
        return depths(self.parent)

    @cached_property
    def leaf(self) -> np.ndarray:
        """Whether each node is a kernel, copy or set."""
        return np.isin(self.kind, LEAVES)

    def value(self, metric: str) -> np.ndarray:
        """Exclusive values of a stored metric, or of one derived from it.

        Derived: `kernel`, `copy`, `set` (device time by kind of work), `htod`, `dtoh`, `dtod` (copy time by direction),
        `wait` (host time in calls that wait for the device). KeyError for anything else.
        """
        if metric in self.metrics:
            return self.metrics[metric]
        device = self.metrics["device"]
        if metric in _KINDS_OF:
            return np.where(np.isin(self.kind, _KINDS_OF[metric]), device, 0)
        if metric in _DIRECTIONS:
            rows = [row for row, text in enumerate(self.strings) if text == _DIRECTIONS[metric]]
            return np.where((self.kind == NodeKind.COPY) & np.isin(self.detail, rows), device, 0)
        if metric == "wait":
            return np.where(self.kind == NodeKind.WAIT, self.metrics["host"], 0)
        raise KeyError(metric)

    def inclusive(self, metric: str) -> np.ndarray:
        """Values of a metric summed over each node's subtree; `shortest` and `longest` are not sums: KeyError."""
        if metric in COMBINE:
            raise KeyError(f"{metric} is not a sum")
        return subtree_sums(self.parent, self.value(metric))

    def total(self, metric: str) -> int:
        """Sum over the tree."""
        return int(self.value(metric).sum())

    def with_info(self, **changes: Any) -> Tree:
        """The same tree with some facts about it replaced."""
        return Tree(
            parent=self.parent, kind=self.kind, phase=self.phase, name=self.name, detail=self.detail,
            forward=self.forward, strings=self.strings, metrics=self.metrics, info=replace(self.info, **changes),
        )  # fmt: skip

    def frame(self) -> pl.DataFrame:
        """One row per node: identity, exclusive metrics, and the inclusive ones as `total_*`."""
        import polars as pl

        strings = pl.Series("strings", self.strings, dtype=pl.String)
        columns: dict[str, Any] = {
            "id": np.arange(len(self), dtype=np.int64),
            "parent": self.parent,
            "depth": self.depth,
            "kind": pl.Series(KIND_NAMES, dtype=pl.String).gather(self.kind.astype(np.int64)),
            "phase": pl.Series(PHASES, dtype=pl.String).gather(self.phase.astype(np.int64)),
            "name": strings.gather(self.name),
            "detail": strings.gather(self.detail),
            "forward": self.forward,
        }
        columns |= self.metrics
        for name in METRICS:
            if name not in COMBINE:
                columns[f"total_{name}"] = self.inclusive(name)
        return pl.DataFrame(columns)


_KINDS_OF = {"kernel": (NodeKind.KERNEL, *INSIDE), "copy": (NodeKind.COPY,), "set": (NodeKind.SET,)}
_DIRECTIONS = {"htod": "HtoD", "dtoh": "DtoH", "dtod": "DtoD"}
