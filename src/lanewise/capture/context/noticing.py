"""What it costs to notice that a step began: torch's way to a hook, the hook, and what is done there.

Steps that take turns, watched and not, all pay for it. What a program alone would take is known only with this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from lanewise.capture.boundaries.finder import StepFinder
from lanewise.capture.boundaries.step_boundaries import ForwardSteps, OptimizerSteps
from lanewise.capture.context.collector import Collector
from lanewise.capture.context.pace import Pace
from lanewise.capture.context.turns import Turns
from lanewise.capture.lazy_torch import torch_part

__all__ = ["Noticing", "cost_of_noticing"]

_CALLS = 50
_ROUNDS = 8


class Noticing(NamedTuple):
    """Nanoseconds for each step.

    Attributes:
        around: until we know, and back: part of every measured step time.
        within: what is done then: between two of them.
    """

    around: float
    within: float


def cost_of_noticing(source: str) -> Noticing:
    """Measured on a module or an optimizer that does nothing, with everything else as in the program; takes some ms.

    Args:
        source: what marks the steps, as `StepFinder.source`.
    """
    torch = torch_part()
    pace = Pace(Turns(skip=0, pairs=0))
    pace.begin(cast(Collector, _NoCollector()))
    with torch.no_grad():
        within = _fastest(pace.boundary) - _fastest(_nothing)
        whole = within
        finder = StepFinder(_Window(pace), _raise)
        if source == "forward":
            module = torch.nn.Sequential(torch.nn.Identity())
            whole = _with_and_without(lambda: module(None), ForwardSteps(finder.found), module)
        elif source == "optimizer":
            optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
            whole = _with_and_without(optimizer.step, OptimizerSteps(finder.found))
    within = max(0.0, within)
    return Noticing(around=round(max(0.0, whole - within), 1), within=round(within, 1))


def _with_and_without(call: Callable[[], Any], source: Any, module: Any = None) -> float:
    """What the hook adds to a call, ns."""
    call()
    best = [float("inf"), float("inf")]
    for _ in range(_ROUNDS):
        # In turns, so that a busy moment hits both.
        best[0] = min(best[0], _fastest(call, rounds=2))
        if module is not None:
            source.look_only_at(module)
        else:
            source.install()
        try:
            # The first two calls tell what makes the steps.
            call()
            call()
            best[1] = min(best[1], _fastest(call, rounds=2))
        finally:
            source.uninstall()
            if module is None:
                source.remove_late()
    return best[1] - best[0]


def _fastest(call: Callable[[], Any], rounds: int = 10) -> float:
    """Of a few rounds, each shorter than the turn that the system gives a thread: ns for each call."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        best = min(best, (time.perf_counter_ns() - begin) / _CALLS)
    return best


class _Window:
    """As the watcher passes boundaries on."""

    attached = False

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._failed = False

    def boundary(self) -> None:
        if self._failed:
            return
        try:
            self._pace.boundary()
        except Exception:
            self._failed = True

    def restart(self) -> None:
        self._pace.restart()


class _NoCollector:
    """Nothing is on or off."""

    windowed = False

    def on(self) -> None: ...

    def off(self) -> None: ...

    def ready(self) -> None: ...

    def started_up(self) -> None: ...


def _nothing() -> None:
    """Stands for the call itself."""


def _raise(error: BaseException) -> None:
    raise error
