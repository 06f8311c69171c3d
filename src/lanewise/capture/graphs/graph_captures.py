"""Looks on while a program captures CUDA graphs, so that what is replayed later has a place.

A replay is one launch: which module and line a kernel in it belongs to is known only when it is captured, as a rule before
a profiler is attached. So the collector of `watch` is on for the length of each capture, and gone after it. Replays in the
recorded steps are noted in their order, for a trace does not say which graph was launched.
"""

from __future__ import annotations

import base64
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lanewise.capture.boundaries.watched_method import watch_method
from lanewise.capture.context import running
from lanewise.capture.inside import our_modules
from lanewise.capture.lazy_torch import torch_part
from lanewise.errors import LanewiseError
from lanewise.trace.file.captured_graphs import KERNEL, CapturedGraphs

if TYPE_CHECKING:
    from lanewise.capture.context.native import Native
    from lanewise.tree.watching.collected import Collected

__all__ = ["GraphCaptures"]

_MOST_NODES = 200_000
_MOST_REPLAYS = 100_000

Node = tuple[int, int, int]


class GraphCaptures:
    """Watches `torch.cuda.CUDAGraph`. Nothing here raises into the program.

    Args:
        recording: whether replays count now. log: is told what takes time, and why graphs stay without places.
    """

    def __init__(self, recording: Callable[[], bool], log: Callable[[str], None]) -> None:
        self._recording, self._log = recording, log
        self._graphs: list[list[Node]] = []
        self._number: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._replays: list[int] = []
        self._collector: Native | None = None
        self._contexts: Collected | None = None
        self._capturing: Any = None
        self._inside = False
        self._over = False
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Look on from here."""
        graph: Any = getattr(sys.modules.get("torch.cuda.graphs"), "CUDAGraph", None)
        if graph is None or torch_part().version.hip:
            return
        self._wrap(graph, "capture_begin", self._begins)
        self._wrap(graph, "capture_end", self._ends, self._ended)
        self._wrap(graph, "replay", self._replayed)

    def no_more(self) -> None:
        """A profiler takes the device: what is captured from here on has no place. Replays are noted all the same."""
        self._over = True
        collector, self._collector = self._collector, None
        if collector is not None:
            self._let_go(collector)
            try:
                with our_modules():
                    self._contexts, _ = collector.collected(lines=False)
            except Exception as error:
                self._failed(error)
            running.release()

    def stop(self) -> None:
        """The program ends; there is nothing to write."""

    def forked(self) -> None:
        """Nothing is captured for a trace of the first process here."""
        self._over = True
        self._collector = None

    def uninstall(self) -> None:
        """As before."""
        for restore in self._restore:
            restore()
        self._restore.clear()

    def facts(self) -> CapturedGraphs | None:
        """What is known; None where no graph was captured, or none replayed in the recorded steps."""
        if self._contexts is None or not self._replays or not any(self._graphs):
            return None
        with our_modules():
            return _facts(self._contexts, self._graphs, self._replays)

    def _wrap(
        self, owner: Any, name: str, before: Callable[[Any], None], after: Callable[[Any], None] | None = None
    ) -> None:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(this: Any, *args: Any, **kwargs: Any) -> Any:
                self._try(before, this)
                try:
                    result = original(this, *args, **kwargs)
                except BaseException:
                    self._try(self._abandoned, this)
                    raise
                if after is not None:
                    self._try(after, this)
                return result

            return wrapped

        self._restore.append(watch_method(owner, name, around))

    def _begins(self, graph: Any) -> None:
        # One capture at a time: a second one on another thread stays without places.
        if self._over or self._capturing is not None:
            return
        if self._collector is None:
            if not running.claim(self):
                # The program is watched, which gives its graphs their places.
                self._over = True
                return
            from lanewise.capture.context.native import Native

            try:
                self._collector = Native(self._log, device=False)
            except Exception:
                running.release()
                raise
        if wrong := self._collector.capture_begins():
            raise LanewiseError(wrong)
        self._capturing = graph
        self._inside = True

    def _ends(self, graph: Any) -> None:
        # Before the graph is made executable, which makes its nodes once more.
        if self._capturing is not graph or self._collector is None:
            return
        nodes = self._collector.capture_ends()
        if sum(map(len, self._graphs)) + len(nodes) <= _MOST_NODES:
            self._number[graph] = len(self._graphs)
            self._graphs.append(nodes)

    def _ended(self, graph: Any) -> None:
        if self._capturing is graph and self._collector is not None:
            self._capturing = None
            self._collector.capture_is_over()

    def _abandoned(self, graph: Any) -> None:
        """A capture that failed, at its begin or its end, leaves no graph."""
        if self._capturing is graph and self._collector is not None:
            self._number.pop(graph, None)
            self._let_go(self._collector)

    def _let_go(self, collector: Native) -> None:
        if self._capturing is not None:
            self._capturing = None
            collector.capture_ends()
            collector.capture_is_over()

    def _replayed(self, graph: Any) -> None:
        if self._inside and self._capturing is None and not self._over and self._collector is not None:
            self._inside = False
            self._collector.leave_device()
        if self._recording() and len(self._replays) < _MOST_REPLAYS:
            self._replays.append(self._number.get(graph, -1))

    def _try(self, act: Callable[[Any], None], graph: Any) -> None:
        try:
            act(graph)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Graphs stay without places from here on; said once."""
        if not self._over:
            self._over = True
            why = error if isinstance(error, LanewiseError) else f"{type(error).__name__}: {error}"
            self._log(f"what CUDA graphs replay stays without a place in the program: {why}")


def _facts(collected: Collected, graphs: list[list[Node]], replays: list[int]) -> CapturedGraphs:
    from lanewise.tree.from_trace.replays import PLACE
    from lanewise.tree.tree_file import dumps
    from lanewise.tree.watching.collected import CollectedKind, CollectedLeaf, tree_of
    from lanewise.tree.watching.watched import Watched

    place: dict[int, int] = {}
    kernels: dict[int, int] = {}
    nodes = [
        [
            (
                kind,
                kernels.setdefault(name, len(kernels)) if kind == KERNEL else -1,
                place.setdefault(context, len(place)),
            )
            for context, kind, name in graph
        ]
        for graph in graphs
    ]
    names = list(collected.names)
    leaves = [
        CollectedLeaf(context, CollectedKind.KERNEL, len(names) + number, 0, 1, 0, 0, 0, 0, 0.0, 0, 0, 0)
        for context, number in place.items()
    ]
    names += [f"{PLACE}{number}" for number in place.values()]
    tree = tree_of(replace(collected, names=names, leaves=leaves), Watched())
    return CapturedGraphs(
        tree=base64.b64encode(dumps(tree)).decode(),
        kernels=[str(names[row]) if row else "" for row in kernels],
        graphs=nodes,
        replays=replays,
    )
