"""Stands in the place of a recording's step finder where somebody else finds the steps and passes them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lanewise.capture.boundaries.finder import Boundaries, StepFinder
from lanewise.capture.boundaries.step_boundaries import Source

__all__ = ["FoundElsewhere"]


class FoundElsewhere:
    """Installs nothing. What marks the steps, and the program's modules, are what the other finder knows.

    Args:
        finder: the one that finds. window, failed: as of `StepFinder`.
    """

    def __init__(self, finder: StepFinder, window: Boundaries, failed: Callable[[BaseException], None]) -> None:
        self._finder = finder
        self._window = window
        self._failed = failed

    @property
    def source(self) -> str:
        """As of `StepFinder`."""
        return self._finder.source

    @property
    def label(self) -> str:
        """As of `StepFinder`."""
        return self._finder.label

    def modules(self) -> list[tuple[str, str]]:
        """As of `StepFinder`."""
        return self._finder.modules()

    def install(self, extra: Sequence[Callable[[Callable[[Source], None]], Source]] = ()) -> None:
        """Nothing."""

    def uninstall(self) -> None:
        """Nothing."""

    def remove_late(self) -> None:
        """Nothing."""

    def found(self, source: Any) -> None:
        """The program's own profiler marks steps, too: others are counted."""

    def call(self) -> None:
        """A step ended."""
        try:
            self._window.boundary()
        except Exception as error:
            self._failed(error)
