"""Marks steps in the trace as torch's own schedule does, so that every reader finds them."""

from __future__ import annotations

from typing import Any

from lanewise.capture.lazy_torch import torch_part

__all__ = ["StepAnnotation"]


class StepAnnotation:
    """`ProfilerStep#N` around each step of the recording."""

    def __init__(self) -> None:
        self._open: Any = None
        self._make: Any = None

    @property
    def is_open(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._open is not None

    def begin(self, step: int) -> None:
        """Step `step` begins."""
        if self._make is None:
            self._make = torch_part("torch.autograd.profiler").record_function
        opened = self._make(f"ProfilerStep#{step}")
        opened.__enter__()
        # Ctrl-C may come inside of it: what has not begun cannot be ended.
        self._open = opened

    def end(self) -> None:
        """The open step, if any, ends."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.__exit__(None, None, None)
