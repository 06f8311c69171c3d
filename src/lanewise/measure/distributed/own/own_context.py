"""Where a rank's own time goes, named so that it is the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Context", "WorkRows", "holds_host", "in_one_piece"]

WorkRows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Pieces of work: step, column of the context, ns, and how many rows each is."""

_ONE_NS = 200_000
"""A stretch of the host this long without a row in it takes as long while it is recorded: sleep, other code, a loader."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where time goes.

    Attributes:
        kind: `python` (a function, or Python that calls no operator), `sleep`, `collection` (of garbage), `loader`,
            `operator`, `call`, `copy` (on either side) or `kernel`.
        name: operator, call, function or kernel; of a stretch between operators, the operator before it.
        until: operator after such a stretch; "" for everything else.
        inside: annotation around it, such as an optimizer's step; launch configuration of a kernel.
        place: function and line of the program, where stacks were recorded.
    """

    kind: str
    name: str
    until: str = ""
    inside: str = ""
    place: str = ""

    @property
    def on_device(self) -> bool:
        """Whether the device spends the time and not the host."""
        return self.kind == "kernel" or (self.kind == "copy" and self.until == "device")


def in_one_piece(context: Context, time_ns: float, count: float) -> bool:
    """Whether it is code that takes as long whatever recording costs, as there are hardly any rows in it."""
    return context.kind in ("python", "sleep", "collection", "loader") and time_ns >= _ONE_NS * max(count, 1.0)


def holds_host(context: Context) -> bool:
    """Whether a device operation is one that the host does: it puts the data where the device can fetch it."""
    return context.on_device and "pageable" in context.name
