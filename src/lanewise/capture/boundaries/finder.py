"""Decides which source of step boundaries counts, and passes its boundaries to the window."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lanewise.capture.boundaries.step_boundaries import ForwardSteps, OptimizerSteps, Source, being_compiled

__all__ = ["Boundaries", "StepFinder"]

_WAIT_FOR_OPTIMIZER = 8
"""Forward calls in training mode that are passed without counting, in case an optimizer is about to step (gradient
accumulation). A program that infers without `eval()` or `no_grad()` is counted from the ninth call on."""


class Boundaries(Protocol):
    """What is told of step boundaries."""

    @property
    def attached(self) -> bool:
        """Whether a better source of boundaries would come too late."""
        ...

    def boundary(self) -> None:
        """A step ended, and the next begins."""
        ...

    def restart(self) -> None:
        """A better source of boundaries was found: forget what the other one counted."""
        ...


class StepFinder:
    """Installs the sources, prefers what the program says over an optimizer over a function over forward calls.

    Args:
        window: is told of every boundary that counts.
        failed: is told of an exception in our own code; the program goes on and nothing is recorded any more.
    """

    def __init__(self, window: Boundaries, failed: Callable[[BaseException], None]) -> None:
        self._window = window
        self._failed = failed
        self._sources: list[Source] = []
        self._current: Source | None = None
        self._forward: ForwardSteps | None = None
        self._looking = False
        self._training_calls = 0
        self.explicit = False

    @property
    def source(self) -> str:
        """Name of the source in use, `none` before any boundary."""
        if self.explicit:
            return "call"
        return self._current.name if self._current is not None else "none"

    @property
    def label(self) -> str:
        """What marks the steps: optimizer class, module class or function."""
        return self._current.label if self._current is not None else ""

    def modules(self) -> list[tuple[str, str]]:
        """Path and class of the modules that the program called from outside of any other, and of those below."""
        return self._forward.seen.listed() if self._forward is not None else []

    def install(self, extra: Sequence[Callable[[Callable[[Source], None]], Source]] = ()) -> None:
        """Begin to look for boundaries; torch is loaded. `extra` makes further sources (`--step-on`)."""
        # Where the program has named a function, calls of modules are looked at for the modules' names only.
        self._forward = ForwardSteps(_ignore if extra else self.found)
        for source in (
            *(make(self.found) for make in extra),
            OptimizerSteps(self.found, lambda: self._window.attached),
            self._forward,
        ):
            try:
                source.install()
            except Exception as error:
                self._failed(error)
                continue
            self._sources.append(source)

    def call(self) -> None:
        """The program itself says that a step ended; from now on nothing else counts."""
        if not self.explicit:
            self.explicit = True
            self.uninstall()
            if self._current is not None:
                self._window.restart()
        self._pass_on()

    def uninstall(self) -> None:
        """Remove all that was installed."""
        for source in self._sources:
            with contextlib.suppress(Exception):
                source.uninstall()

    def remove_late(self) -> None:
        """Remove what had to stay while the program was inside one of our hooks."""
        for source in self._sources:
            late = getattr(source, "remove_late", None)
            if late is not None:
                with contextlib.suppress(Exception):
                    late()
        self._sources.clear()

    def found(self, source: Source) -> None:
        """`source` saw a boundary."""
        if self.explicit:
            return
        if source is not self._current:
            if not self._may_replace(source):
                return
            if self._current is not None:
                self._window.restart()
            self._current = source
            for other in self._sources:
                if other is self._forward and source.name == "function":
                    # No module of this step has been called yet: look at them until its end.
                    self._looking = True
                elif other is not source and _RANK[other.name] > _RANK[source.name]:
                    other.uninstall()
        elif self._looking:
            self._looking = False
            if self._forward is not None:
                self._forward.uninstall()
        self._pass_on()

    def _may_replace(self, source: Source) -> bool:
        if self._window.attached:
            return False
        if source.name == "forward" and _training() and self._training_calls < _WAIT_FOR_OPTIMIZER:
            self._training_calls += 1
            return False
        return self._current is None or _RANK[source.name] < _RANK[self._current.name]

    def _pass_on(self) -> None:
        try:
            if not being_compiled():
                self._window.boundary()
        except Exception as error:
            self._failed(error)


_RANK = {"profiler": 0, "function": 1, "optimizer": 2, "forward": 3}
"""Lower wins."""


def _training() -> bool:
    torch: Any = sys.modules["torch"]
    return torch.is_grad_enabled()


def _ignore(_: Source) -> None:
    """For a source whose boundaries do not count."""
