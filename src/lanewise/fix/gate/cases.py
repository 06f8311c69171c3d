"""The calls that every candidate is checked with: what the original makes of each, the truth, and the room for rounding."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

from lanewise.fix.candidates.candidate import Variant, taken_off
from lanewise.fix.gate.exchanged import shaken_parameters
from lanewise.fix.gate.inputs import Named, adversarial, near, shaken
from lanewise.fix.gate.kept import Kept
from lanewise.fix.gate.observe import Observation, observe
from lanewise.fix.gate.reference import Reference, Truth
from lanewise.fix.gate.tolerances import NOISE, Error, error_of, rounded, worst
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, tensors_of
from lanewise.fix.torch_types import DType
from lanewise.fix.typed_torch import torch

__all__ = ["Case", "Cases"]

_LAYOUTS = ("contiguous", "expanded", "transposed")
_MOST_SEEDS = 5
_MOST_KINDS = 3
"""Recorded calls of different shapes that get all checks."""


class Case(NamedTuple):
    """A call with what the original program makes of it, and the truth."""

    name: str
    call: Call
    layout: str
    eager: Observation
    truth: Truth


class _Planned(NamedTuple):
    """A case to be; `may_refuse`: the original need not take such values."""

    named: Named
    layout: str = "contiguous"
    may_refuse: bool = False


class Cases:
    """The cases of one subject; the first is prepared at once, the others when a candidate is worth it.

    A case has several times the memory of a call, half of it in double precision: what does not fit is made again.

    Args:
        subject: unpatched while cases are prepared. reference: what knows the truth. kept: for cases.
        seconds: that preparing may take: more time means more seeds, never fewer kinds of input.

    Attributes:
        refused: calls that the original refuses, with its error: a candidate must, too.
    """

    def __init__(self, subject: Subject, state: State, reference: Reference, kept: Kept, seconds: float) -> None:
        self._subject, self._state, self._reference, self._kept = subject, state, reference, kept
        self._room: dict[tuple[str, str], Error] = {}
        self._prepared: list[_Planned] = []
        self._types: dict[str, DType] = {}
        self.refused: list[tuple[Named, str]] = []
        self._more_s = seconds
        self._needed, self._more = self._plan()
        if self._needed:
            self._prepare_next(self._needed)

    def prepare(self) -> None:
        """Prepare what is still to come; goes on where it was interrupted."""
        while self._needed:
            self._prepare_next(self._needed)
        while self._more and self._more_s > 0:
            began = time.monotonic()
            self._prepare_next(self._more)
            self._more_s -= time.monotonic() - began
        self._more_s = 0.0

    def __len__(self) -> int:
        """How many are prepared, the recorded calls first."""
        return len(self._prepared)

    def case(self, number: int, variant: Variant) -> Case:
        """A prepared case; the variant, which is on the program, is taken off if the case has to be made again."""
        planned = self._prepared[number]

        def again() -> Case:
            with taken_off(variant):
                return self._made(planned.named, planned.layout)

        return self._kept.get(("case", number), again)

    def room(self, case: Case, name: str) -> Error:
        """How far rounding takes the original of an output or a gradient, over all cases of that kind."""
        return self._room_of(case.name, name)

    def _room_of(self, case: str, name: str) -> Error:
        return self._room.get((_recipe(case), name), Error(0.0, 0.0))

    def gradient_room(self) -> Error:
        """The most that rounding takes any gradient which is more than noise."""
        return worst(
            room for (_, name), room in self._room.items() if name.startswith("gradient") and room.norm <= NOISE
        )

    def kinds(self) -> list[int]:
        """Numbers of recorded calls of different kinds, the first ones of each."""
        seen: dict[Any, int] = {}
        for at, call in enumerate(self._subject.calls):
            seen.setdefault(tuple((t.shape, t.dtype) for t in tensors_of(call)), at)
        return list(seen.values())[:_MOST_KINDS]

    def recorded_room(self, name: str) -> Error:
        """How far rounding takes the original in the first recorded call."""
        return self._room_of(self._prepared[0].named.name, name)

    def recorded_type(self, name: str) -> DType:
        """Of an output of the first recorded call."""
        return self._types[name]

    def _plan(self) -> tuple[list[_Planned], list[_Planned]]:
        """The cases to come: those that every candidate gets, the first recorded call first, and more seeds of them."""
        calls = list(self._subject.calls)
        named = [_Planned(Named(f"recorded call {at}", partial(calls.__getitem__, at))) for at in range(len(calls))]
        alike = near(calls[-1]) if not self._subject.random else []
        named += [_Planned(Named(f"the last call with {one.name}", one.make), may_refuse=True) for one in alike]
        for layout in _LAYOUTS[1:] if self._subject.kind == "training" else ():
            named.append(_Planned(Named(f"recorded call 0, {layout} gradient", lambda: calls[0]), layout))
        for number in self.kinds()[1:]:
            named += [_Planned(one, may_refuse=True) for one in adversarial(calls[number], seeds=1)]
        others = [_Planned(one, may_refuse=True) for one in adversarial(calls[0], seeds=_MOST_SEEDS)]
        a_seed = len(others) // _MOST_SEEDS
        return named + others[:a_seed], others[a_seed:]

    def _prepare_next(self, planned: list[_Planned]) -> None:
        """The next case; what the original refuses must be refused by everybody."""
        one = planned[0]
        try:
            case = self._learnt(one.named, one.layout)
            self._kept.get(("case", len(self._prepared)), lambda: case)
            self._prepared.append(one)
        except torch.OutOfMemoryError:
            # No answer of the program's: another call of the same size would do.
            if not one.may_refuse:
                raise
            self._state.restore()
        except Exception as error:
            if not one.may_refuse:
                raise
            self.refused.append((one.named, type(error).__name__))
            self._state.restore()
        planned.pop(0)

    def _made(self, named: Named, layout: str) -> Case:
        call = named.make()
        eager = observe(self._subject, call, self._state, layout=layout)
        case = Case(named.name, call, layout, eager, self._reference.of(call, eager, layout=layout))
        self._state.restore()  # hooks of a copy write to what those of the program close over
        return case

    def _learnt(self, named: Named, layout: str) -> Case:
        """A case, from which the room for rounding is known, too."""
        case = self._made(named, layout)
        eager = case.eager
        self._types = self._types or {name: value.dtype for name, value in eager.values()}
        # One run says little about how far rounding may go: inputs and parameters that are off by a roundoff are a second
        # opinion, and all seeds of a recipe are looked at together.
        seen_in = (eager,) if _own_recipe(case.name) in _AT_JUMPS else (eager, self._shaken(case.call, layout))
        for seen in seen_in:
            truth = dict(case.truth.values())
            for name, value in seen.values():
                if not value.dtype.is_floating_point or name not in truth or truth[name].shape != value.shape:
                    continue
                if rounded(value, truth[name]):  # buffers mostly: there may be hundreds
                    continue
                room = worst((self.room(case, name), error_of(value, truth[name])))
                self._room[_recipe(case.name), name] = room
        return case

    def _shaken(self, call: Call, layout: str) -> Observation:
        with shaken_parameters(self._subject):
            return observe(self._subject, shaken(call), self._state, layout=layout)


_AT_JUMPS = {"quarters": "normal"}
"""Recipes whose values lie where programs jump: there a roundoff more shows the jump, and not what rounding does. That is
found out for ordinary values of that size."""


def _recipe(name: str) -> str:
    own = _own_recipe(name)
    return _AT_JUMPS.get(own, own)


def _own_recipe(name: str) -> str:
    return name.split(",", 1)[0].rstrip(" 0123456789")
