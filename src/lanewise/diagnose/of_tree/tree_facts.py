"""What rules ask a calling-context tree: which contexts, inside what, how much of the step, and where they are.

A tree has sums, no timeline: nothing here tells what ran beside what. Times are ns per step, as they would be without
watching where that was measured; without marked steps the whole collection counts as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lanewise.diagnose.rule import Saving
from lanewise.measure.regime.python_functions import function_label
from lanewise.measure.regime.regime import regime_of
from lanewise.report.model import Location
from lanewise.report.quantity import Quantity, text
from lanewise.trace.groups import mask_of
from lanewise.trace.schema import ENGINE_PREFIX
from lanewise.tree.forest import climb, nearest_marked, subtree_sums
from lanewise.tree.model import NodeKind, Phase, Tree
from lanewise.tree.views import user_frames
from lanewise.tree.watching.start_up import with_start_up
from lanewise.tree.watching.watched import Distortion

__all__ = ["Contexts", "StepOf"]


_MAIN = "main thread"


class StepOf(NamedTuple):
    """A step as the tree has it, ns: without watching, with an interval, and as recorded."""

    ns: float
    low: float
    high: float
    recorded: float


class Contexts:
    """A tree without its start-up, and what each of its contexts costs per step.

    Attributes:
        tree: the contexts. steps: how many are in it, 1 where none are marked. marked: whether steps are.
        host, device: exclusive time of each context. count, launches, calls: exclusive numbers. All per step.
    """

    def __init__(self, tree: Tree) -> None:
        self.whole = tree
        self.tree = with_start_up(tree, "out")
        self.marked = self.tree.info.step_count > 0
        self.steps = max(1, self.tree.info.step_count) * max(1, self.tree.info.runs)
        metrics = self.tree.metrics
        self.host = metrics["host"] / (self.steps * self._ratio[0])
        self.device = metrics["device"] / self.steps
        self.count, self.launches, self.calls = (metrics[name] / self.steps for name in ("count", "launches", "calls"))

    # -- the step ------------------------------------------------------------------------------------------------------

    @cached_property
    def _ratio(self) -> tuple[float, float, float]:
        """What watching multiplies host times with, and the interval of that; where that is wide, what is certain of it."""
        found = self._distortion
        if found is None or not 0 < found.low <= found.high:
            return 1.0, 1.0, 1.0
        return max(1.0, found.ratio if found.telling else found.low), max(1.0, found.low), max(1.0, found.high)

    @property
    def _distortion(self) -> Distortion | None:
        return self.tree.info.watched.distortion if self.tree.info.watched is not None else None

    @property
    def unwatched(self) -> bool:
        """Whether it is known how long a step takes without watching."""
        return self._distortion is not None and self._distortion.telling

    @property
    def slowed(self) -> float:
        """What watching multiplies host times with, at least 1: `host` is divided by it."""
        return self._ratio[0]

    @cached_property
    def on_main(self) -> np.ndarray:
        """Which contexts are those of the main thread; of the busiest one, where none is known to be that."""
        threads = (self.tree.kind == NodeKind.THREAD) & (self.tree.parent < 0)
        if not threads.any():
            return threads
        roots = climb(self.tree.parent)[1]
        main = threads & self._named(f"^{_MAIN}$")
        if not main.any():
            of_root = np.bincount(roots, weights=self.tree.metrics["host"], minlength=len(self.tree))
            main[np.argmax(np.where(threads, of_root, -1.0))] = True
        return main[roots]

    @cached_property
    def step(self) -> StepOf:
        """The time that passed on the main thread: work, waiting and Python between operators."""
        recorded = float(self.tree.metrics["host"][self.on_main].sum()) / self.steps
        ratio, low, high = self._ratio
        return StepOf(recorded / ratio, recorded / high, recorded / low, recorded)

    @property
    def times_python(self) -> bool:
        """Whether the time between operators is in the tree: a trace without stacks does not have it."""
        return self.tree.info.frames or self.tree.info.watched is not None

    def of_step(self, ns: float) -> float:
        """Share of the step that a time per step is, at most all of it."""
        return min(1.0, ns / max(1.0, self.step.ns))

    @property
    def per(self) -> Quantity:
        """What sums refer to, for a title."""
        return text("per step" if self.marked else "in this recording")

    # -- the device ----------------------------------------------------------------------------------------------------

    @cached_property
    def kernels(self) -> np.ndarray:
        """Which contexts are kernels that compute."""
        return (self.tree.kind == NodeKind.KERNEL) & (self.tree.phase != Phase.COMMUNICATION)

    @cached_property
    def compute_ns(self) -> float:
        """Device time of kernels that compute; at least 1."""
        return max(1.0, float(self.device[self.kernels].sum()))

    @property
    def has_device(self) -> bool:
        """Whether anything ran on a device."""
        return bool(self.tree.leaf.any())

    def copies(self, *directions: str) -> np.ndarray:
        """Which contexts are copies in these directions (`HtoD`, `DtoH`, `DtoD`)."""
        return (self.tree.kind == NodeKind.COPY) & self._texts(self.tree.detail, f"^({'|'.join(directions)})$")

    @cached_property
    def shares(self) -> dict[str, float]:
        """Classes of the step's time, as far as sums tell: what the device does one after the other, and the rest, in
        which it waits. Work on several streams at once counts as if it were not: the wait is longer then than said."""
        step = self.step.ns
        if not self.has_device or step <= 0:
            return {}
        between = self.copies("HtoD", "DtoH")
        moved = float(self.device[between].sum())
        apart = float(self.device[self.tree.leaf & (self.tree.phase == Phase.COMMUNICATION)].sum())
        computed = max(0.0, float(self.device.sum()) - moved - apart)
        over = max(1.0, (moved + apart + computed) / step)
        parts = {"compute": computed, "transfer": moved, "communication": apart}
        shares = {name: ns / step / over for name, ns in parts.items() if ns > 0}
        rest = 1.0 - sum(shares.values())
        return {**shares, "host": rest} if rest > 1e-9 else shares

    @cached_property
    def regime(self) -> str:
        """Key of `REGIMES`: as of a trace."""
        return "undetermined" if self.why_undetermined else regime_of(self.shares)

    @cached_property
    def why_undetermined(self) -> str:
        """Why it cannot be said what the run is bound by; "" if it can."""
        watched = self.tree.info.watched
        if not self.has_device:
            return "the tree holds no device work"
        if not self.times_python:
            return "the tree was made from a trace without stacks and does not hold the time between operators"
        if watched is not None and not self.marked:
            return (
                "no steps were seen, so that the program's start is part of what was measured: name what a step calls with "
                "`lanewise watch --step-on FN`"
            )
        return ""

    @property
    def host_matters(self) -> bool:
        """Whether the device waits for the host for a noticeable part of the step, whatever else binds it."""
        waits = self.shares.get("host", 0.0) >= _HOST_FROM
        return self.regime in {"host", "mixed"} or (waits and self.regime != "undetermined")

    # -- which contexts ------------------------------------------------------------------------------------------------

    def operators(self, pattern: str) -> np.ndarray:
        """Which contexts are operators whose name (without the engine's prefix) a pattern finds."""
        kinds = np.isin(self.tree.kind, (NodeKind.OPERATOR, NodeKind.ANNOTATION))
        return kinds & self._named(pattern)

    def frames(self, pattern: str) -> np.ndarray:
        """Which contexts are Python frames whose text a pattern finds."""
        return (self.tree.kind == NodeKind.FRAME) & self._named(pattern)

    def kernels_named(self, pattern: str) -> np.ndarray:
        """Which contexts are kernels whose name a pattern finds."""
        return (self.tree.kind == NodeKind.KERNEL) & self._named(pattern)

    def within(self, marked: np.ndarray) -> np.ndarray:
        """Which contexts are marked, or stand inside of one that is."""
        return nearest_marked(self.tree.parent, marked) >= 0

    def outermost(self, marked: np.ndarray) -> np.ndarray:
        """The marked contexts without those inside of another one."""
        above = np.where(self.tree.parent >= 0, self.within(marked)[self.tree.parent], False)
        return marked & ~above

    def holding(self, marked: np.ndarray) -> np.ndarray:
        """Which contexts are marked, or hold one that is."""
        return subtree_sums(self.tree.parent, marked.astype(np.int64)) > 0

    def climbed(self, marked: np.ndarray, through: str) -> np.ndarray:
        """From each marked context up through operators of that name, as far as they reach; rows, one for each."""
        leads = self.operators(through)
        at = np.flatnonzero(marked)
        while len(at):
            above = self.tree.parent[at]
            go = (above >= 0) & leads[np.maximum(above, 0)]
            if not go.any():
                break
            at = np.where(go, above, at)
        return at

    def inside(self, values: np.ndarray) -> np.ndarray:
        """Sum of exclusive values over the subtree of each context."""
        return subtree_sums(self.tree.parent, values)

    def saving(self, host: np.ndarray, device: np.ndarray | None = None, *, kept: float | np.ndarray = 0.0) -> Saving:
        """What goes away at most: the time of these contexts (on the device by default of the same), but for a part.

        Where no steps are known the host's time is that of first calls: nothing is promised of it."""
        return Saving(
            np.where(host & self.marked, self.host, 0.0) * (1.0 - kept),
            np.where(host if device is None else device, self.device, 0.0) * (1.0 - kept),
        )

    def blocking(self, roots: np.ndarray) -> Saving:
        """The same of operators (rows) that wait for their own copies: the copy's time is a part of the operator's."""
        inside = self.within(mask_of(len(self.tree), roots))
        copies = np.flatnonzero(inside & self.copies("HtoD", "DtoH") & (self.tree.parent >= 0))
        moved = np.bincount(self.tree.parent[copies], weights=self.device[copies], minlength=len(self.tree))
        return Saving(np.where(inside, np.maximum(self.host - moved, 0.0), 0.0), np.where(inside, self.device, 0.0))

    def least(self, per_step: float) -> float:
        """From how many on a thing is often: so many per step, ten times as many where no step is known."""
        return per_step if self.marked else 10 * per_step

    def name(self, node: int) -> str:
        """Name of a context, without the engine's prefix."""
        return self.tree.label(node).removeprefix(ENGINE_PREFIX)

    def _named(self, pattern: str) -> np.ndarray:
        return self._texts(self.tree.name, pattern)

    def _texts(self, rows: np.ndarray, pattern: str) -> np.ndarray:
        found = re.compile(pattern)
        hit = np.array([bool(found.search(t.removeprefix(ENGINE_PREFIX))) for t in self.tree.strings], dtype=bool)
        return hit[rows] if len(hit) else np.zeros(len(rows), dtype=bool)

    # -- where ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _around(self) -> np.ndarray:
        """The context around each: for backward work that of its forward operator."""
        return np.where(self.tree.forward >= 0, self.tree.forward, self.tree.parent)

    @cached_property
    def _own_frame(self) -> np.ndarray:
        return nearest_marked(self._around, user_frames(self.tree))

    @cached_property
    def _module(self) -> np.ndarray:
        return nearest_marked(self._around, self.tree.kind == NodeKind.MODULE)

    def location(self, node: int) -> Location | None:
        """Where in the program a context is: the innermost frame that is no library's, and the module."""
        if node < 0:
            return None
        frame, module = int(self._own_frame[node]), int(self._module[node])
        file, line, function = "", 0, ""
        if frame >= 0:
            parsed = self.tree.python_frame(frame)
            file, line, function = parsed.file, parsed.line, parsed.function
        operators: list[str] = []
        at = node
        while at >= 0 and len(operators) < _OPERATORS:
            if self.tree.kind[at] in (NodeKind.OPERATOR, NodeKind.ANNOTATION):
                operators.insert(0, self.name(at))
            at = int(self.tree.parent[at])
        path = self.tree.label(module) if module >= 0 else ""
        return Location(file, line, function, path, "", operators) if file or path or operators else None

    def function(self, node: int) -> str:
        """A Python frame in a few words, `main (train.py:12)`."""
        return function_label(self.tree.label(node), self.tree.strings[int(self.tree.detail[node])])

    def site(self, node: int) -> str:
        """Where a context is, in one line: source and module, then the operator."""
        frame, module = int(self._own_frame[node]), int(self._module[node])
        parts: list[str] = []
        if module >= 0:
            parts.append(_INDEX.sub("*", self.tree.label(module)) + ":")
        if frame >= 0:
            parsed = self.tree.python_frame(frame)
            parts.append(f"{parsed.function} ({parsed.file}:{parsed.line})")
        if self.tree.kind[node] != NodeKind.FRAME or frame != node:
            parts.append(self.name(node))
        return " ".join(parts)

    def by_site(self, rows: np.ndarray, **values: np.ndarray) -> list[dict[str, float | str]]:
        """Rows `site` and sums of the given values (one for each of `rows`), largest of the last value first; equal
        layers of a network are one site."""
        return _summed([self.site(node) for node in rows.tolist()], values)

    def by_name(self, rows: np.ndarray, **values: np.ndarray) -> list[dict[str, float | str]]:
        """The same by name alone, wherever the contexts are."""
        return _summed([self.name(node) for node in rows.tolist()], values)


def _summed(labels: list[str], values: Mapping[str, np.ndarray]) -> list[dict[str, float | str]]:
    sums: dict[str, dict[str, float]] = {}
    for at, label in enumerate(labels):
        row = sums.setdefault(label, dict.fromkeys(values, 0.0))
        for key, column in values.items():
            row[key] += float(column[at])
    last = list(values)[-1]
    ordered = sorted(sums.items(), key=lambda item: (-item[1][last], item[0]))
    return [{"site": label, **row} for label, row in ordered]


_HOST_FROM = 0.20
_OPERATORS = 6
_INDEX = re.compile(r"(?<![^._])\d+(?![^.])")
