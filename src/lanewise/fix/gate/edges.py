"""C4: calls that a candidate was not made for reach the original program: other shapes, strides, modes. And C3 for results
that carry a graph although nobody trains here.

Values are held against the truth, as everywhere: by the error that the original itself has in that situation. Where there
is no truth, against the original, by how far it is from itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, NamedTuple

from lanewise.fix.candidates.candidate import Variant, taken_off
from lanewise.fix.gate.exchanged import exchanged_values
from lanewise.fix.gate.inputs import has_floats, other_shapes, out_of_range, shaken
from lanewise.fix.gate.kept import Kept
from lanewise.fix.gate.observe import Observation, compare_form, gradient_scale, observe
from lanewise.fix.gate.passed_on import passed_on
from lanewise.fix.gate.reference import Reference
from lanewise.fix.gate.tolerances import NOISE, Error, allowed, allowed_noise, error_of, other_masks, rounded, worst
from lanewise.fix.model import Check
from lanewise.fix.state import State
from lanewise.fix.subject import Subject
from lanewise.fix.tensors import Call, same_bits
from lanewise.fix.typed_torch import torch

__all__ = ["Edges"]


_PLAUSIBLE = 0.1
"""An original that is further from the truth than this, in norm, computes something else: dropout drew other numbers."""


class _Situation(NamedTuple):
    """A way to call the program: `mode` is of training, None for the one that it is in; `comparable`: whether the truth is
    known there."""

    name: str
    make: Callable[[], Call]
    context: Callable[[], Any] = nullcontext
    mode: bool | None = None
    differentiated: bool = False
    comparable: bool = True


class _Known:
    """What is known of a situation: the truth, and several runs of the original, the first of which counts.

    Args:
        room: how far rounding takes the original in the recorded call, by name of a value.
    """

    def __init__(self, truth: dict[str, Any], seen: list[dict[str, Any]], room: Callable[[str], Error]) -> None:
        self._truth, self._seen, self._room = truth, seen, room
        self._limits: dict[str, tuple[Any, Error]] = {}
        self._sound: Error | None = None

    def limit(self, name: str, differentiated: bool) -> tuple[Any, Error]:
        """What a value is held against, and how far the original is from that; without a truth, from itself."""
        reference, error = self._limit(name)
        if not differentiated:
            return reference, error
        if self._sound is None:
            # Where inputs hardly matter (a bias), rounding is what it is elsewhere, but for gradients that are noise.
            names = [other for other, value in self._seen[0].items() if value.dtype.is_floating_point]
            self._sound = worst(one for other in names if (one := self._limit(other)[1]).norm <= NOISE)
        return reference, worst([error, self._sound])

    def _limit(self, name: str) -> tuple[Any, Error]:
        if name not in self._limits:
            self._limits[name] = self._found(name)
        return self._limits[name]

    def _found(self, name: str) -> tuple[Any, Error]:
        value, reference = self._seen[0][name], self._truth.get(name)
        mine = [one[name] for one in self._seen if name in one and one[name].shape == value.shape]
        if reference is not None and reference.shape == value.shape:
            if rounded(value, reference):
                mine = mine[1:]
            if not mine or error_of(mine[0], reference).norm <= _PLAUSIBLE:
                return reference, worst(error_of(one, reference) for one in mine)
        apart = worst([self._room(name), *(error_of(one, value) for one in mine[1:])])
        # Each may be off by what passes, in opposite directions.
        return value, Error(2 * apart.largest, 2 * apart.norm, math.inf)


class Edges:
    """Makes the checks. What the original does is run once for all candidates, as it stays the same.

    Args:
        subject: unpatched while it is run here. reference: for the truth.
        room: how far rounding takes the original in the recorded call, by name of a value. kept: for what it does.
        precision: roundoff of the arithmetic that the program asks for, if lower than that of its types.
    """

    def __init__(
        self,
        subject: Subject,
        state: State,
        reference: Reference,
        room: Callable[[str], Error],
        kept: Kept,
        precision: float = 0.0,
    ) -> None:
        self._subject, self._state, self._reference = subject, state, reference
        self._room, self._kept, self._precision = room, kept, precision
        self._refuses: dict[str, str] = {}
        self._allowed = precision

    def check(self, variant: Variant, *, precision: float = 0.0, drops_graph: bool = False) -> list[Check]:
        """The checks, with the candidate in place.

        Args:
            precision: roundoff of the arithmetic that was allowed. drops_graph: whether results may carry no graph.
        """
        checks: list[Check] = []
        self._allowed = max(self._precision, precision)
        for situation in self._situations():
            if drops_graph and situation.differentiated:
                continue
            problem = self._one(variant, situation, precision > 0, drops_graph)
            if problem is not None:
                checks.append(Check(situation.name, not problem, problem))
        return checks

    def _situations(self) -> list[_Situation]:
        subject = self._subject
        first = subject.calls[0]
        kind = subject.device.type

        def recorded() -> Call:
            return first

        found: list[_Situation] = []
        if subject.kind == "inference" and torch.is_grad_enabled():
            # Results that carry a graph may be differentiated: then the gradients have to be right.
            found.append(_Situation("C3 gradients", recorded, differentiated=True))
        found += [_Situation(f"C4 {one.name}", one.make) for one in other_shapes(first)]
        if kind == "cpu":  # on a card an index that is out of range ends the process
            found += [_Situation(f"C4 {one.name}", one.make) for one in out_of_range(first)]
        weights = partial(exchanged_values, subject)
        found.append(_Situation("C2 weights are read each time", recorded, weights, comparable=False))
        for name, dtype in (("autocast", torch.bfloat16), ("autocast to half precision", torch.float16)):
            found.append(_Situation(f"C4 under {name}", recorded, partial(torch.autocast, kind, dtype)))
        found.append(_Situation("C4 without gradients", recorded, torch.no_grad))
        if subject.kind == "inference":
            found.append(_Situation("C4 in inference mode", recorded, torch.inference_mode))
            found.append(_Situation("C4 with gradients", recorded, torch.enable_grad))
        if subject.module is not None:
            found.append(_Situation("C4 in the other mode", recorded, mode=not subject.module.training))
        return found

    def _one(self, variant: Variant, situation: _Situation, lower: bool, drops_graph: bool) -> str | None:
        """The problem, "" if there is none; None where nothing is new in the situation."""
        if self._passed_on(variant, situation):
            return ""
        try:
            expected = self._original(variant, situation)
        except torch.OutOfMemoryError:
            return None
        if expected is not None and situation.differentiated and not expected.gradients:
            return None
        try:
            found = self._observed(situation)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self._state.restore()
            if expected is None:
                return None
            return f"raises {type(error).__name__}: {' '.join(str(error).split())[:120]}"
        if expected is None:
            return f"gives a result where the original raises {self._refuses[situation.name]}"
        problem = compare_form(expected, found)
        if (lower and " instead of " in problem) or (drops_graph and "carry a graph" in problem):
            problem = ""
        return problem or self._values(variant, situation, expected, found)

    def _passed_on(self, variant: Variant, situation: _Situation) -> bool:
        if situation.mode is not None:
            self._subject.module.train(situation.mode)
        try:
            with situation.context():
                return passed_on(self._subject, variant, situation.make())
        finally:
            self._state.restore()

    def _original(self, variant: Variant, situation: _Situation) -> Observation | None:
        """What the original does there; None where it does not take such a call."""

        def observed() -> Observation | None:
            with taken_off(variant):
                try:
                    return self._observed(situation)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    self._refuses[situation.name] = type(error).__name__
                    return None
                finally:
                    self._state.restore()

        return self._kept.get(("original", situation.name), observed)

    def _observed(self, situation: _Situation, call: Call | None = None) -> Observation:
        subject, kind = self._subject, self._subject.kind
        if situation.mode is not None:
            subject.module.train(situation.mode)
        if situation.differentiated:
            subject.kind = "training"
        try:
            with situation.context():
                return observe(subject, call if call is not None else situation.make(), self._state)
        finally:
            subject.kind = kind

    def _values(self, variant: Variant, situation: _Situation, expected: Observation, found: Observation) -> str:
        scale, known = gradient_scale(expected), cache(lambda: self._learnt(variant, situation, expected))
        for (name, a), (_, b) in zip(expected.values(), found.values(), strict=True):
            if same_bits(a, b):
                continue
            if not a.dtype.is_floating_point or other_masks(b, a, a):
                return f"{name} differs"
            reference, limit = known().limit(name, situation.differentiated)
            if name.startswith("gradient"):
                noise = limit if limit.norm > NOISE else Error(0.0, 0.0)
                if error_of(b, reference).within(allowed_noise(noise, reference, scale, a.dtype)):
                    continue
                if noise.norm:
                    return f"{name} is not the noise that it is in the original"
            error, most = (
                error_of(b, reference),
                allowed(limit, a.dtype, precision=self._allowed, summed=name.startswith("gradient")),
            )
            if not error.within(most):
                return f"{name} is off by {error.largest:.2g} of its largest value, where {most.largest:.2g} passes"
        return ""

    def _learnt(self, variant: Variant, situation: _Situation, expected: Observation) -> _Known:
        return self._kept.get(("known", situation.name), lambda: self._learn(variant, situation, expected))

    def _learn(self, variant: Variant, situation: _Situation, expected: Observation) -> _Known:
        with taken_off(variant):
            try:
                truth = self._truth(situation, expected) if situation.comparable else {}
                # The same call once more, and with inputs that are off by a roundoff: how far two right ways may be apart.
                others = [self._observed(situation)]
                call = situation.make()
                if has_floats(call):
                    others.append(self._observed(situation, shaken(call)))
            except Exception:
                truth, others = {}, []
            finally:
                self._state.restore()
        return _Known(truth, [dict(one.values()) for one in (expected, *others)], self._room)

    def _truth(self, situation: _Situation, expected: Observation) -> dict[str, Any]:
        subject, kind = self._subject, self._subject.kind
        if situation.differentiated:
            subject.kind = "training"
        try:
            return self._reference.named(situation.make(), expected, mode=situation.mode)
        finally:
            subject.kind = kind
