"""What a candidate is: a name, a sentence, and how to put it on and take it off."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lanewise.fix.subject import Subject

__all__ = ["Candidate", "NotApplicableError", "Prediction", "Setting", "Several", "Variant", "taken_off"]


class NotApplicableError(Exception):
    """Raised by the first call of a variant that finds out only then that it cannot take such calls; says why."""


class Variant(Protocol):
    """A candidate that has been built for one subject. Both calls are cheap and may alternate any number of times."""

    def enable(self) -> None: ...
    def disable(self) -> None: ...


@dataclass(frozen=True)
class Prediction:
    """What the trace must show if the candidate is what made it faster.

    Attributes:
        what: one sentence.
        holds: from what the traces before and after show (`gate.shown.Seen`), whether it happened and the figures.
    """

    what: str
    holds: Callable[[Any, Any], tuple[bool, str]]


@dataclass(frozen=True)
class Candidate:
    """Something to try.

    Attributes:
        name: stable: what `allow` and saved plans use.
        family: `program`, `layout`, `precision`, `attention`, `compile`, `graph`, `kernel`, `threads` or `optimizer`.
        region: what part of the program: `whole`, `training step`, or a module's path.
        what: one sentence.
        build: makes the variant; may be slow, may raise.
        refused_unless_allowed: what it changes besides rounding; "" if nothing. Such a candidate needs to be named by the
            user in `allow`.
        precision: unit roundoff of the arithmetic it declares, for a candidate whose change of precision was allowed; 0
            otherwise.
        predictions: what the trace must show afterwards.
        answers: codes of the diagnoses that it answers; a report that has none of them prunes it. Empty: always tried.
        saves: upper bound on the share of the time that it can give back, from the work it removes; 1 if unknown.
        compiles: whether building it runs a compiler, which may take long.
        engine: whether it decides how the whole program is run (captured, compiled): of such candidates a plan has one.
            Each is built on what else was kept, and takes the place of the one before if it is faster.
        alternative: whether its time is one that the plan has to beat even if it is not used (eager, compile, graph).
        drops_graph: whether its outputs carry no graph for a backward pass.
        hopeless: why it cannot pay in these calls, where that is known before it is built; "" if it may.
        follows: name of another candidate whose work it takes up: without that it is not tried.
        caveat: what its gain depends on besides the program and the machine; "" if nothing.
        owed: whether it is tried whatever the budget, as anybody has it with one line of torch; see `shares.OWED_S`.
        again: how long compiling takes where another candidate has compiled the program before, as a share of how long that
            took: what both generate is found in the compiler's caches.
        replaces: whether it computes single operators in another way, so that there may be a gain with only one.
        refuses: checks of C3 that end in an error where the original works; nothing goes wrong without being noticed.
    """

    name: str
    family: str
    region: str
    what: str
    build: Callable[[Subject], Variant]
    refused_unless_allowed: str = ""
    precision: float = 0.0
    predictions: tuple[Prediction, ...] = ()
    answers: tuple[str, ...] = ()
    saves: float = 1.0
    compiles: bool = False
    engine: bool = False
    alternative: bool = False
    drops_graph: bool = False
    follows: str = ""
    hopeless: str = ""
    caveat: str = ""
    owed: bool = False
    again: float = 1.0
    replaces: bool = False
    refuses: tuple[str, ...] = ()

    @property
    def part(self) -> bool:
        """Whether it changes how parts of the program are computed, which has no effect under a captured graph."""
        return self.family in ("attention", "kernel", "layout")


@contextmanager
def taken_off(variant: Variant) -> Generator[None]:
    """The program as it is without a variant that is on it."""
    variant.disable()
    try:
        yield
    finally:
        variant.enable()


class Setting:
    """A variant that is a value of something process-wide: read before, set, put back."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> None:
        self._read, self._write, self._value = read, write, value
        self._before: list[Any] = []

    def enable(self) -> None:
        """Set it."""
        if not self._before:
            self._before.append(self._read())
            self._write(self._value)

    def disable(self) -> None:
        """Put back what was there."""
        if self._before:
            self._write(self._before[0])
            self._before.clear()


class Several:
    """Variants that go together; taken off in reverse order."""

    def __init__(self, parts: list[Variant]) -> None:
        self.parts = parts

    def enable(self) -> None:
        """Put all on."""
        for part in self.parts:
            part.enable()

    def disable(self) -> None:
        """Take all off."""
        for part in reversed(self.parts):
            part.disable()
