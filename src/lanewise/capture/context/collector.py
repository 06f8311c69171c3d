"""What collects: the native collector, or short windows of torch's profiler where it cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from lanewise.capture.context.native import Native
from lanewise.capture.context.profiler_windows import EVERY, Windows
from lanewise.capture.context.saver import Endings
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.tree.model import Tree
    from lanewise.tree.slowing.looks.since_last import Source
    from lanewise.tree.watching.watched import Watched

__all__ = ["WAYS", "Collector", "choose"]

WAYS = ("auto", "native", "windows")


class Collector(Protocol):
    """One way to collect.

    Attributes:
        way, frames, device, checks, callback_ns: as in `Watched`.
        windowed: whether it can only collect whole steps, few at a time.
        followed: the sums that a program is followed by; None of one whose windows are too rare for it.
    """

    way: str
    frames: str
    device: str
    checks: dict[str, str]
    callback_ns: float
    windowed: bool

    @property
    def followed(self) -> Source | None: ...

    def endings(self) -> Endings:
        """What tells of signals that end the program."""
        ...

    def started_up(self) -> None:
        """The first step has ended: what came so far is the program's start-up."""
        ...

    def ready(self) -> None:
        """It will be switched on at the next boundary."""
        ...

    def on(self) -> None:
        """Collect from here on."""
        ...

    def off(self) -> None:
        """Do not."""
        ...

    def uncounted(self) -> AbstractContextManager[None]:
        """What the calling thread does inside is ours, and no context's time."""
        ...

    def make_way(self) -> None:
        """Off, and a profiler of torch's will be attached until it is switched on again."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...

    def tree(self, watched: Watched, *, source: str, lines: bool) -> Tree:
        """What there is so far."""
        ...

    def counts(self) -> tuple[int, dict[str, int]]:
        """Operators so far, and losses by name."""
        ...


def choose(
    way: str, log: Callable[[str], None], *, frames: bool, device: bool, max_nodes: int
) -> tuple[Collector, str]:
    """The first way that works, and why it is not the native one; "" where it is or was not asked for.

    Raises:
        Exception: what keeps the native collector from working, if `way` is "native".
    """
    if way == "windows":
        return Windows(frames=frames), ""
    try:
        return Native(log, frames=frames, device=device, or_nothing=way == "auto", max_nodes=max_nodes), ""
    except Exception as error:
        if way == "native":
            raise
        reason = str(error) if isinstance(error, LanewiseError) else f"{type(error).__name__}: {error}"
        log(f"{reason}; short profiler windows are folded instead, one step of {EVERY} or of --every")
        return Windows(frames=frames), reason
